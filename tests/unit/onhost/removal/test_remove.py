"""A run that fails or is cut off keeps the record, and the next one goes on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lockstep.onhost.core import layout
from lockstep.onhost.records import ours
from lockstep.onhost.removal import remove
from lockstep.onhost.removal.actions import Actions
from lockstep.onhost.removal.items import Item


def items(root: Path) -> list[Item]:
    for name in ("a", "program", "record"):
        (root / name).mkdir()
    (root / "a/x").write_text("")
    return [Item("content", "/a"), Item("program", "/program"), Item("record", "/record")]


def test_all_goes(tmp_path: Path) -> None:
    todo = items(tmp_path)
    assert remove._done(Actions(layout.Paths(tmp_path), None), todo) == []
    assert list(tmp_path.iterdir()) == []
    # Again, where nothing is left.
    assert remove._done(Actions(layout.Paths(tmp_path), None), todo) == []


def test_where_something_stays_the_program_and_the_record_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    todo = items(tmp_path)

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy", "/a")

    monkeypatch.setattr("lockstep.onhost.removal.actions.shutil.rmtree", busy)
    [(item, why)] = remove._done(Actions(layout.Paths(tmp_path), None), todo)
    assert item.name == "/a" and "/a: Device or resource busy" in why
    assert (tmp_path / "record").exists() and (tmp_path / "program").exists()


def test_a_folder_with_a_file_of_somebody_else_s_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/x").write_text("")
    assert Actions(layout.Paths(tmp_path), None).of("folder", [Item("folder", "/mine")]) == []
    assert (tmp_path / "mine/x").exists()


def test_a_setting_has_its_value_of_before(tmp_path: Path) -> None:
    at = tmp_path / "proc/sys/vm/swappiness"
    at.parent.mkdir(parents=True)
    at.write_text("10")
    actions = Actions(layout.Paths(tmp_path), None)
    assert actions.of("setting", [Item("setting", "vm.swappiness", "60")]) == []
    assert at.read_text() == "60"


def test_a_unit_without_a_file_keeps_no_other_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(argv: list[str], limit: float = 0.0) -> subprocess.CompletedProcess[str]:
        ran.append(argv)
        return subprocess.CompletedProcess(argv, 3, "", "")

    monkeypatch.setattr("lockstep.onhost.removal.actions.runner.run", run)
    there = tmp_path / "etc/systemd/system/lockstep-a.service"
    there.parent.mkdir(parents=True)
    there.write_text("")
    units = [Item("unit", there.name), Item("unit", "lockstep-back.timer")]
    assert Actions(layout.Paths(tmp_path), None).of("unit", units) == []
    assert ["systemctl", "disable", "--quiet", there.name] in ran
    assert ["systemctl", "stop", there.name, "lockstep-back.timer"] in ran


@pytest.mark.parametrize("kind", ["file", "original"])
def test_addresses_of_before_are_applied_and_none_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    ran: list[str] = []

    def run(argv: list[str], limit: float = 0.0) -> subprocess.CompletedProcess[str]:
        ran.append(argv[0])
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr("lockstep.onhost.removal.actions.runner.run", run)
    path = "/etc/netplan/40-cx7.yaml"
    for folder in ("", ours.ADOPTED):
        at = tmp_path / f"{folder}{path}".lstrip("/")
        at.parent.mkdir(parents=True)
        at.write_text(folder)
    assert Actions(layout.Paths(tmp_path), None).of(kind, [Item(kind, path)]) == []
    assert ("netplan" in ran) == (kind == "original")
    left = tmp_path / path.lstrip("/")
    assert (left.read_text() if left.exists() else None) == {"original": ours.ADOPTED}.get(kind)
