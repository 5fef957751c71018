"""Files are written whole or not at all, and never against the tool that will read them."""

from __future__ import annotations

import getpass
import grp
import io
import os
import stat
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

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
GROUP = grp.getgrgid(os.getgid()).gr_name


@pytest.fixture(autouse=True)
def _systemd(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSystemd(tmp_path_factory.mktemp("host") / "systemd", monkeypatch)


class WriteResult(NamedTuple):
    """A run that has ended: its exit code, and its messages about faults."""

    code: int
    message: str


def write(
    *files: dict[str, Any], remove: tuple[Path, ...] = (), adopt: tuple[Path, ...] = (), **more: Any
) -> WriteResult:
    """tests/unit/files/test_remote_exec.py and the lab have it sent to a host."""
    request = {"files": list(files), "remove": list(map(str, remove)), **more}
    with redirect_stderr(io.StringIO()) as err, pytest.raises(SystemExit) as error:
        checked_file_writes.answer_request({**request, "adopt": list(map(str, adopt))})
    code = error.value.code
    return (
        WriteResult(code, err.getvalue()) if isinstance(code, int) else WriteResult(1, f"{code}\n")
    )


def file(path: Path, text: str, check: str | None = None, **attributes: str) -> dict[str, Any]:
    mode = {"mode": "0644", "owner": USER, "group": GROUP, **attributes}
    return {"path": str(path), "text": text, "check": check, **mode}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_written_with_their_mode_and_parents(tmp_path: Path) -> None:
    path = tmp_path / "a/b/c"
    result = write(file(path, "grüße\n", mode="0600"))
    assert result == (0, "")
    assert path.read_text() == "grüße\n"
    assert mode(path) == 0o600
    assert names(path.parent) == ["c"]


def test_a_link_is_replaced_and_what_it_pointed_at_stays(tmp_path: Path) -> None:
    path, target = tmp_path / "a", tmp_path / "target"
    target.write_text("theirs")
    path.symlink_to(target)
    assert write(file(path, "ours"), adopt=(path,)).code == 0
    assert (path.is_symlink(), path.read_text(), target.read_text()) == (False, "ours", "theirs")


def test_what_a_cut_off_run_left_half_written_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".lockstep-x7").write_text("half")
    (tmp_path / ".lockstep-x8").mkdir()
    assert write(file(tmp_path / "a", "whole")).code == 0
    assert names(tmp_path) == ["a"]


def test_what_a_program_of_ours_is_writing_just_now_is_not_swept(tmp_path: Path) -> None:
    live = tmp_path / f"{atomic_files.temporary_prefix()}x7"
    live.write_text("half")
    (tmp_path / f"{atomic_files.PREFIX}1-7-of-one-that-was-killed").write_text("half")
    assert write(file(tmp_path / "a", "whole")).code == 0
    assert names(tmp_path) == [live.name, "a"]


def test_folders_get_their_mode_even_where_they_are(tmp_path: Path) -> None:
    target_path = tmp_path / "there"
    target_path.mkdir(mode=0o700)
    folder_mode = {"owner": USER, "group": GROUP, "mode": "0750"}
    folders = [{"path": str(path), **folder_mode} for path in (target_path, tmp_path / "new/deep")]
    assert write(folders=folders, adopt=(target_path,)).code == 0
    assert mode(target_path) == mode(tmp_path / "new/deep") == 0o750


def test_removing_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    target_path, dangling = tmp_path / "there", tmp_path / "dangling"
    target_path.write_text(OLD)
    dangling.symlink_to("/etc/lockstep/nonexistent")
    assert write(remove=(target_path, dangling, tmp_path / "none")).code == 0
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"owner": "no-such-user"}, "no-such-user"),
        ({"group": "no-such-group"}, "no-such-group"),
        ({"path": "/proc/none/a"}, "/proc/none: No such file or directory"),
    ],
)
def test_a_failure_is_one_line_and_leaves_nothing_behind(
    tmp_path: Path, wrong: dict[str, str], message: str
) -> None:
    result = write({**file(tmp_path / "a", "x"), **wrong})
    assert result.code == 1
    assert message in result.message
    assert len(result.message.splitlines()) == 1
    assert names(tmp_path) == []


UNIT = "[Unit]\nDescription=A test\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=%s\n"
WRONG = {
    "unit": ("a.service", "[Service]\nType=oneshot\nExecStart=/bin/true\nRestrat=always\n"),
    "shell": ("a.sh", "#!/bin/sh\nif true; then\n"),
    "json": ("a.json", '{"a": 1,}'),
    "sudoers": ("a", "%nobody ALL=(root NOPASSWD: /bin/true\n"),
}


@pytest.mark.parametrize("check", WRONG)
def test_one_refused_file_replaces_nothing(tmp_path: Path, check: str) -> None:
    name, text = WRONG[check]
    target_path, other_path = tmp_path / name, tmp_path / "other"
    unit = tmp_path / "good.service"
    for path in (target_path, other_path, unit):
        path.write_text(OLD)
    good = file(unit, UNIT % "/bin/true", "unit")
    result = write(file(other_path, "new"), file(target_path, text, check), good)
    assert result.code == 1
    assert result.message.startswith("refused by its own checker; what was there stays:\n")
    assert name in result.message
    assert "lockstep-verify" not in result.message
    assert {path.read_text() for path in (target_path, other_path, unit)} == {OLD}


def test_what_every_checker_accepts_is_written(tmp_path: Path) -> None:
    result = write(
        file(tmp_path / "a.service", UNIT % "/bin/true", "unit"),
        file(tmp_path / "a.sh", "#!/bin/sh\ntrue\n", "shell", mode="0755"),
        file(tmp_path / "a.json", "{}\n", "json"),
        file(tmp_path / "a", "nobody ALL=(root) NOPASSWD: /bin/true\n", "sudoers", mode="0440"),
    )
    assert result == (0, "")
    assert names(tmp_path) == ["a", "a.json", "a.service", "a.sh"]


def test_a_unit_may_start_a_script_that_comes_with_it(tmp_path: Path) -> None:
    script, unit = tmp_path / "scripts/start.sh", tmp_path / "a.service"
    comes_with_it = file(script, "#!/bin/sh\ntrue\n", "shell", mode="0755")
    result = write(file(unit, UNIT % script, "unit"), comes_with_it)
    assert result == (0, "")
    assert unit.exists()
    assert mode(script) == 0o755


def test_a_refused_unit_does_not_get_a_new_text_of_its_script(tmp_path: Path) -> None:
    script, unit = tmp_path / "start.sh", tmp_path / "a.service"
    script.write_text(f"#!/bin/sh\n{OLD}")
    script.chmod(0o755)
    wrong = (UNIT % script).replace("ExecStart", "ExecStrat")
    new = file(script, "#!/bin/sh\nnew\n", "shell", mode="0755")
    result = write(new, file(unit, wrong, "unit"))
    assert result.code == 1
    assert script.read_text() == f"#!/bin/sh\n{OLD}"
    assert not unit.exists()


def test_one_thing_of_somebody_elses_in_the_way_keeps_everything_as_it_is(tmp_path: Path) -> None:
    target_path, new_path, folder = tmp_path / "vllm.service", tmp_path / "a", tmp_path / "models"
    target_path.write_text("[Service]\nExecStart=/home/me/serve\n")
    target_path.chmod(0o640)
    folder.mkdir(mode=0o711)
    folder_mode = {"owner": USER, "group": GROUP, "mode": "0755"}
    result = write(
        file(new_path, "new"),
        file(target_path, "new"),
        folders=[
            {"path": str(tmp_path / "new"), **folder_mode},
            {"path": str(folder), **folder_mode},
        ],
        links={str(tmp_path / "link"): "/usr/bin/true"},
    )
    assert result.code == 1
    first, file_, folder_ = result.message.splitlines()
    assert first == "not Lockstep's, and nothing was changed:"
    assert file_.startswith(f"{target_path}: written 20") and file_.endswith(f", of {USER}")
    assert folder_ == f"{folder}: mode 0711, of {USER}:{GROUP}; it would be 0755, of {USER}:{GROUP}"
    assert names(tmp_path) == ["models", "vllm.service"]
    assert (target_path.read_text()[:9], mode(target_path), mode(folder)) == (
        "[Service]",
        0o640,
        0o711,
    )


def test_nothing_of_somebody_elses_is_removed_and_no_link_of_theirs_replaced(
    tmp_path: Path,
) -> None:
    target_path, link = tmp_path / "run.sh", tmp_path / "uv"
    target_path.write_text("#!/bin/sh\n")
    link.symlink_to("/opt/mine/uv")
    assert write(remove=(target_path,)).code == 1
    result = write(links={str(link): "/usr/local/lib/lockstep/environments/uv/bin/uv"})
    assert result.message.splitlines()[1:] == [f"{link}: a link to /opt/mine/uv"]
    assert target_path.exists() and str(link.readlink()) == "/opt/mine/uv"


def test_a_module_is_compiled_for_those_who_may_write_nothing(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    assert write(file(module, "import json\n")).code == 0
    [target_path] = (tmp_path / "__pycache__").iterdir()
    assert target_path.name.startswith("module.")


def test_a_link_is_made_and_moved(tmp_path: Path) -> None:
    link = tmp_path / "uv"
    # A run that was cut off left this one.
    (tmp_path / ".lockstep-uv.7").symlink_to("/usr")
    for target in ("/usr/local/lib/lockstep/1", "/usr/local/lib/lockstep/2"):
        assert write(links={str(link): target}).code == 0
        assert str(link.readlink()) == target
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wrong: tuple[str, str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    settings = {"gateway": {"bind": "0.0.0.0", "tls": "own"}, "monitoring": {"enabled": True}}
    (plan,) = join_clusters([spark("spark1", **settings)], "site.py")
    every = (*tls_files(plan), *monitoring_files(plan))
    (wanted_file,) = (
        managed_file for managed_file in every if managed_file.path.endswith(f"/{name}")
    )
    path = tmp_path / name
    assert wrong[0] in wanted_file.text
    result = write(file(path, wanted_file.text.replace(*wrong), wanted_file.check))
    assert result.code == 1 and result.message.startswith("refused by its own checker")
    assert not path.exists()
    assert write(file(path, wanted_file.text, wanted_file.check)) == (0, "")
    assert path.read_text() == wanted_file.text and list(home.iterdir()) == []
