"""A run that fails or is cut off keeps the record, and the next one goes on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import layout
from lockstep.onhost.records import ownership
from lockstep.onhost.removal import remove
from lockstep.onhost.removal.actions import Actions
from lockstep.onhost.removal.items import RemovalItem


def items(root: Path) -> list[RemovalItem]:
    for name in ("a", "program", "record"):
        (root / name).mkdir()
    (root / "a/x").write_text("")
    return [
        RemovalItem("content", "/a"),
        RemovalItem("program", "/program"),
        RemovalItem("record", "/record"),
    ]


def test_all_goes(tmp_path: Path) -> None:
    todo = items(tmp_path)
    assert remove._do_actions_in_order(Actions(layout.Paths(tmp_path), None), todo) == []
    assert list(tmp_path.iterdir()) == []
    # Again, where nothing is left.
    assert remove._do_actions_in_order(Actions(layout.Paths(tmp_path), None), todo) == []


def test_where_something_stays_the_program_and_the_record_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    todo = items(tmp_path)

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy", "/a")

    monkeypatch.setattr("lockstep.onhost.removal.actions.shutil.rmtree", busy)
    [(item, why)] = remove._do_actions_in_order(Actions(layout.Paths(tmp_path), None), todo)
    assert item.name == "/a" and "/a: Device or resource busy" in why
    assert (tmp_path / "record").exists() and (tmp_path / "program").exists()


def test_a_folder_with_a_file_of_somebody_else_s_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/x").write_text("")
    assert (
        Actions(layout.Paths(tmp_path), None).remove_items_of_kind(
            "folder", [RemovalItem("folder", "/mine")]
        )
        == []
    )
    assert (tmp_path / "mine/x").exists()


def test_a_setting_has_its_value_of_before(tmp_path: Path) -> None:
    at = tmp_path / "proc/sys/vm/swappiness"
    at.parent.mkdir(parents=True)
    at.write_text("10")
    actions = Actions(layout.Paths(tmp_path), None)
    assert (
        actions.remove_items_of_kind("setting", [RemovalItem("setting", "vm.swappiness", "60")])
        == []
    )
    assert at.read_text() == "60"


def test_a_unit_without_a_file_keeps_no_other_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)
    target_path = tmp_path / "etc/systemd/system/lockstep-a.service"
    target_path.parent.mkdir(parents=True)
    target_path.write_text("")
    units = [RemovalItem("unit", target_path.name), RemovalItem("unit", "lockstep-back.timer")]
    assert Actions(layout.Paths(tmp_path), None).remove_items_of_kind("unit", units) == []
    assert f"systemctl disable -- {target_path.name}" in systemd.calls
    assert f"systemctl stop -- {target_path.name} lockstep-back.timer" in systemd.calls


@pytest.mark.parametrize("kind", ["file", "original"])
def test_addresses_of_before_are_applied_and_none_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    programs: list[str] = []

    def run(argv: list[str], *_: float, **__: object) -> subprocess.CompletedProcess[str]:
        programs.append(argv[0])
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr("lockstep.onhost.removal.actions.runner.run", run)
    path = "/etc/netplan/40-cx7.yaml"
    for folder in ("", ownership.ADOPTED_FOLDER):
        at = tmp_path / f"{folder}{path}".lstrip("/")
        at.parent.mkdir(parents=True)
        at.write_text(folder)
    assert (
        Actions(layout.Paths(tmp_path), None).remove_items_of_kind(kind, [RemovalItem(kind, path)])
        == []
    )
    assert ("netplan" in programs) == (kind == "original")
    target_path = tmp_path / path.lstrip("/")
    assert (target_path.read_text() if target_path.exists() else None) == {
        "original": ownership.ADOPTED_FOLDER
    }.get(kind)
