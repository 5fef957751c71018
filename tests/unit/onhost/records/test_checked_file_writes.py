"""Files are written whole or not at all, and never against the tool that will read them."""

import getpass
import grp
import io
import os
import stat
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import atomic_files
from lockstep.onhost.records import checked_file_writes, rollback_journal
from lockstep.onhost.records.ownership import MARK

OLD = f"# {MARK} for target old.\n"
OWNER = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name}


@pytest.fixture(autouse=True)
def _systemd(tmp_path_factory, monkeypatch):
    FakeSystemd(tmp_path_factory.mktemp("host") / "systemd", monkeypatch)


def write(*files: dict, remove=(), adopt=(), **more: object) -> tuple[int, str]:
    """Exit code and messages; tests/unit/files/test_remote_exec.py and the lab have it sent to a
    host."""
    request = {"files": list(files), "remove": list(map(str, remove)), **more}
    with redirect_stderr(io.StringIO()) as err, pytest.raises(SystemExit) as error:
        checked_file_writes.answer_request({**request, "adopt": list(map(str, adopt))})
    code = error.value.code
    return (code, err.getvalue()) if isinstance(code, int) else (1, f"{code}\n")


def file(path: Path, text: str, check: str | None = None, **attributes: str) -> dict:
    return {"path": str(path), "text": text, "check": check, "mode": "0644", **OWNER, **attributes}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_written_with_their_mode_and_parents(tmp_path):
    """In the place of a link, too: tests/unit/onhost/core/test_atomic_files.py."""
    path = tmp_path / "a/b/c"
    assert write(file(path, "grüße\n", mode="0600")) == (0, "")
    assert (path.read_text(), mode(path), names(path.parent)) == ("grüße\n", 0o600, ["c"])
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
    old, new = tmp_path / "there", tmp_path / "new/deep"
    old.mkdir(mode=0o700)
    folders = [{"path": str(path), **OWNER, "mode": "0750"} for path in (old, new)]
    assert write(folders=folders, adopt=(old,)) == (0, "")
    assert mode(old) == mode(new) == 0o750


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
CADDY = ":80 {\n\ttls internal\n\treverse_proxy localhost:81\n}\n"
RULES = "groups: [{name: a, rules: [{record: b, expr: 7}]}]\n"
ALERTS = "route: {receiver: me}\nreceivers: [{name: me}]\n"
#: Check → a file that it refuses.
WRONG = {
    "unit": ("a.service", "[Service]\nType=oneshot\nExecStart=/bin/true\nRestrat=always\n"),
    "shell": ("a.sh", "#!/bin/sh\nif true; then\n"),
    "json": ("a.json", '{"a": 1,}'),
    "sudoers": ("a", "%nobody ALL=(root NOPASSWD: /bin/true\n"),
    "caddy": ("Caddyfile", CADDY.replace("_proxy", "_poxy")),
    "prometheus": ("prometheus.yml", "scrape_config: []\n"),
    "rules": ("rules.yml", RULES.replace("7", "7 7")),
    "alertmanager": ("alertmanager.yml", ALERTS.replace(": me}\nr", ": nowhere}\nr")),
}


@pytest.mark.parametrize("check", WRONG)
def test_one_refused_file_replaces_nothing_not_even_a_script_that_a_unit_starts(tmp_path, check):
    name, text = WRONG[check]
    places = target_path, other_path, script, unit = [
        tmp_path / part for part in (name, "other", "start.sh", "good.service")
    ]
    for path in places:
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
    assert "lockstep-verify" not in message
    assert {path.read_text() for path in places} == {OLD}


def test_what_every_checker_accepts_is_written_with_a_unit_before_its_script(tmp_path, monkeypatch):
    """No checker touches a home."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", f"{tmp_path}/home")
    script = tmp_path / "scripts/start.sh"
    result = write(
        file(tmp_path / "a.service", UNIT % script, "unit"),
        file(script, "#!/bin/sh\ntrue\n", "shell", mode="0755"),
        file(tmp_path / "a.json", "{}\n", "json"),
        file(tmp_path / "a", "nobody ALL=(root) NOPASSWD: /bin/true\n", "sudoers", mode="0440"),
        file(tmp_path / "b", CADDY, "caddy"),
        file(tmp_path / "c", "scrape_configs: []\n", "prometheus"),
        file(tmp_path / "d", RULES, "rules"),
        file(tmp_path / "e", ALERTS, "alertmanager"),
    )
    assert result == (0, "")
    assert names(tmp_path) == ["a", "a.json", "a.service", "b", "c", "d", "e", "home", "scripts"]
    assert mode(script) == 0o755 and names(tmp_path / "home") == []


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
    first, *lines = message.splitlines()
    assert first == "not Lockstep's, and nothing was changed:"
    assert [line.partition(": ")[0] for line in lines] == [str(unit), str(link), str(folder)]
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


def test_what_is_there_is_noted_before_files_links_and_removals(tmp_path, monkeypatch):
    notes = []

    def note(_, noted_paths: list[str]) -> None:
        notes.append((noted_paths, names(tmp_path)))

    monkeypatch.setattr(rollback_journal, "note_before_change", note)
    new, old, link = tmp_path / "a", tmp_path / "gone", tmp_path / "link"
    old.write_text(OLD)
    assert write(file(new, ""), remove=(old,), links={str(link): "a"}) == (0, "")
    assert notes == [([str(new), str(old), str(link)], ["gone"])]
    assert names(tmp_path) == ["a", "link"]
