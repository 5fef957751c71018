"""Files are written whole or not at all, and never against the tool that will read them."""

from __future__ import annotations

import getpass
import grp
import io
import os
import stat
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from a_spark import spark
from onhost_fakes import FakeSystemd

from lockstep.inventory.cluster_join import join_clusters
from lockstep.monitoring.stack import monitoring_files
from lockstep.onhost.core import atomic_files
from lockstep.onhost.records import checked_file_writes
from lockstep.onhost.records.ownership import MARK
from lockstep.units.tls_unit import tls_files

OLD = f"# {MARK} for target old.\n"
USER = getpass.getuser()
OWNER = {"owner": USER, "group": grp.getgrgid(os.getgid()).gr_name}


@pytest.fixture(autouse=True)
def _systemd(tmp_path_factory, monkeypatch) -> None:
    FakeSystemd(tmp_path_factory.mktemp("host") / "systemd", monkeypatch)


def write(*files: dict[str, Any], remove=(), adopt=(), **more: Any) -> tuple[int, str]:
    """Exit code and messages; tests/unit/files/test_remote_exec.py and the lab have it sent to a
    host."""
    request = {"files": list(files), "remove": list(map(str, remove)), **more}
    with redirect_stderr(io.StringIO()) as err, pytest.raises(SystemExit) as error:
        checked_file_writes.answer_request({**request, "adopt": list(map(str, adopt))})
    code = error.value.code
    return (code, err.getvalue()) if isinstance(code, int) else (1, f"{code}\n")


def file(path: Path, text: str, check: str | None = None, **attributes: str) -> dict[str, Any]:
    return {"path": str(path), "text": text, "check": check, "mode": "0644", **OWNER, **attributes}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_written_with_their_mode_and_parents_and_a_link_is_replaced(tmp_path):
    path, link, target = tmp_path / "a/b/c", tmp_path / "link", tmp_path / "target"
    target.write_text("mine")
    link.symlink_to(target)
    assert write(file(path, "grüße\n", mode="0600"), file(link, "ours"), adopt=(link,)) == (0, "")
    assert (path.read_text(), mode(path), names(path.parent)) == ("grüße\n", 0o600, ["c"])
    assert (link.is_symlink(), link.read_text(), target.read_text()) == (False, "ours", "mine")
    # A module is compiled for those who may write nothing.
    assert write(file(path.with_name("module.py"), "import json\n")) == (0, "")
    assert list(path.parent.glob("__pycache__/module.*"))


def test_what_a_cut_off_run_left_is_swept_and_what_is_written_just_now_is_not(tmp_path):
    live = tmp_path / f"{atomic_files.temporary_prefix()}x7"
    for path in (live, tmp_path / ".lockstep-x7", tmp_path / f"{atomic_files.PREFIX}1-7-killed"):
        path.write_text("half")
    (tmp_path / ".lockstep-x8").mkdir()
    assert write(file(tmp_path / "a", "whole")) == (0, "")
    assert names(tmp_path) == [live.name, "a"]


def test_folders_get_their_mode_even_where_they_are(tmp_path):
    target_path = tmp_path / "there"
    target_path.mkdir(mode=0o700)
    folders = [
        {"path": str(path), **OWNER, "mode": "0750"}
        for path in (target_path, tmp_path / "new/deep")
    ]
    assert write(folders=folders, adopt=(target_path,)) == (0, "")
    assert mode(target_path) == mode(tmp_path / "new/deep") == 0o750


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"owner": "no-such-user"}, "no-such-user"),
        ({"path": "/proc/none/a"}, "/proc/none: No such file or directory"),
    ],
)
def test_a_failure_is_one_line_and_leaves_nothing_behind(tmp_path, wrong, message):
    code, lines = write({**file(tmp_path / "a", "x"), **wrong})
    assert code == 1 and message in lines and len(lines.splitlines()) == 1
    assert names(tmp_path) == []


UNIT = "[Unit]\nDescription=A test\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=%s\n"
WRONG = {
    "unit": ("a.service", "[Service]\nType=oneshot\nExecStart=/bin/true\nRestrat=always\n"),
    "shell": ("a.sh", "#!/bin/sh\nif true; then\n"),
    "json": ("a.json", '{"a": 1,}'),
    "sudoers": ("a", "%nobody ALL=(root NOPASSWD: /bin/true\n"),
}


@pytest.mark.parametrize("check", WRONG)
def test_one_refused_file_replaces_nothing_not_even_a_script_that_a_unit_starts(tmp_path, check):
    name, text = WRONG[check]
    target_path, other_path, script = (tmp_path / part for part in (name, "other", "start.sh"))
    unit = tmp_path / "good.service"
    for path in (target_path, other_path, script, unit):
        path.write_text(OLD)
    script.chmod(0o755)
    code, message = write(
        file(other_path, "new"),
        file(script, "#!/bin/sh\nnew\n", "shell", mode="0755"),
        file(target_path, text, check),
        file(unit, UNIT % script, "unit"),
    )
    assert code == 1
    assert message.startswith("refused by its own checker; what was there stays:\n")
    assert name in message and "lockstep-verify" not in message
    assert {path.read_text() for path in (target_path, other_path, script, unit)} == {OLD}


def test_what_every_checker_accepts_is_written_with_a_unit_before_its_script(tmp_path):
    script = tmp_path / "scripts/start.sh"
    result = write(
        file(tmp_path / "a.service", UNIT % script, "unit"),
        file(script, "#!/bin/sh\ntrue\n", "shell", mode="0755"),
        file(tmp_path / "a.json", "{}\n", "json"),
        file(tmp_path / "a", "nobody ALL=(root) NOPASSWD: /bin/true\n", "sudoers", mode="0440"),
    )
    assert result == (0, "")
    assert names(tmp_path) == ["a", "a.json", "a.service", "scripts"] and mode(script) == 0o755


def test_one_thing_of_somebody_elses_in_the_way_keeps_everything_as_it_is(tmp_path):
    unit, folder, link = tmp_path / "vllm.service", tmp_path / "models", tmp_path / "uv"
    unit.write_text("[Service]\nExecStart=/home/me/serve\n")
    unit.chmod(0o640)
    folder.mkdir(mode=0o711)
    link.symlink_to("/opt/mine/uv")
    folder_mode = {**OWNER, "mode": "0755"}
    code, message = write(
        file(tmp_path / "a", "new"),
        file(unit, "new"),
        folders=[{"path": str(path), **folder_mode} for path in (tmp_path / "new", folder)],
        links={str(tmp_path / "link"): "/usr/bin/true", str(link): "/usr/local/lib/lockstep/uv"},
    )
    assert code == 1
    first, file_line, link_line, folder_line = message.splitlines()
    assert first == "not Lockstep's, and nothing was changed:"
    assert file_line.startswith(f"{unit}: written 20") and file_line.endswith(f", of {USER}")
    assert link_line == f"{link}: a link to /opt/mine/uv"
    account = ":".join(OWNER.values())
    assert folder_line == f"{folder}: mode 0711, of {account}; it would be 0755, of {account}"
    assert write(remove=(unit,))[0] == 1
    assert names(tmp_path) == ["models", "uv", "vllm.service"]
    assert str(link.readlink()) == "/opt/mine/uv" and unit.read_text().startswith("[Service]")
    assert (mode(unit), mode(folder)) == (0o640, 0o711)


def test_links_are_made_and_moved_and_what_is_there_or_not_is_removed(tmp_path):
    link, file_path, dangling = tmp_path / "uv", tmp_path / "there", tmp_path / "dangling"
    # A run that was cut off left this one.
    (tmp_path / ".lockstep-uv.7").symlink_to("/usr")
    for target in ("/usr/local/lib/lockstep/1", "/usr/local/lib/lockstep/2"):
        assert write(links={str(link): target}) == (0, "")
        assert str(link.readlink()) == target
    file_path.write_text(OLD)
    dangling.symlink_to("/etc/lockstep/nonexistent")
    assert write(remove=(file_path, dangling, tmp_path / "none")) == (0, "")
    assert names(tmp_path) == ["uv"]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("Caddyfile", ("reverse_proxy", "reverse_poxy")),
        ("prometheus.yml", ("scrape_configs:", "scrape_config:")),
        ("prometheus-rules.yml", ("expr: ", "expr: 7 7 ")),
        ("alertmanager.yml", ("receiver: nobody", "receiver: nowhere")),
    ],
)
def test_what_its_reader_refuses_is_not_written_and_no_home_is_touched(
    tmp_path, monkeypatch, name, wrong
):
    home, path = tmp_path / "home", tmp_path / name
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    settings = {"gateway": {"bind": "0.0.0.0", "tls": "own"}, "monitoring": {"enabled": True}}
    (plan,) = join_clusters([spark("spark1", **settings)], "site.py")
    every = (*tls_files(plan), *monitoring_files(plan))
    (wanted_file,) = (config for config in every if config.path.endswith(f"/{name}"))
    assert wrong[0] in wanted_file.text
    code, message = write(file(path, wanted_file.text.replace(*wrong), wanted_file.check))
    assert code == 1 and message.startswith("refused by its own checker")
    assert not path.exists()
    assert write(file(path, wanted_file.text, wanted_file.check)) == (0, "")
    assert path.read_text() == wanted_file.text and list(home.iterdir()) == []
