"""A run that fails or is cut off keeps the record, and the next one goes on."""

import subprocess

import pytest

from lockstep.onhost.records import ownership
from lockstep.onhost.removal import remove
from lockstep.onhost.removal.actions import Actions
from lockstep.onhost.removal.items import RemovalItem

TODO = [RemovalItem(kind, f"/{kind}") for kind in ("content", "program", "record")]


def remove_items(paths, *items: RemovalItem) -> list[tuple[RemovalItem, str]]:
    """Do the actions of one kind; the failures."""
    return Actions(paths, None).remove_items_of_kind(items[0].kind, items)


def test_where_something_stays_the_program_and_the_record_stay_until_the_next_run(
    paths, monkeypatch
):
    for item in TODO:
        (paths.root / item.kind / "folder").mkdir(parents=True)

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy", "/a")

    with monkeypatch.context() as patch:
        patch.setattr("lockstep.onhost.removal.actions.shutil.rmtree", busy)
        [(item, why)] = remove._do_actions_in_order(Actions(paths, None), TODO)
    assert item.name == "/content" and "/a: Device or resource busy" in why
    assert len(list(paths.root.iterdir())) == 3
    # Again, and once more where nothing is left.
    for _ in range(2):
        assert remove._do_actions_in_order(Actions(paths, None), TODO) == []
        assert list(paths.root.iterdir()) == []


def test_a_folder_with_a_file_of_others_stays_and_a_setting_has_its_value_of_before(paths):
    file, setting = paths.root / "mine/x", paths.proc / "sys/vm/swappiness"
    for path in (file, setting):
        path.parent.mkdir(parents=True)
        path.write_text("10")
    assert remove_items(paths, RemovalItem("folder", "/mine")) == []
    assert remove_items(paths, RemovalItem("setting", "vm.swappiness", "60")) == []
    assert file.exists() and setting.read_text() == "60"


def test_a_unit_without_a_file_keeps_no_other_enabled(paths, systemd):
    file = paths.root / "etc/systemd/system/lockstep-a.service"
    file.parent.mkdir(parents=True)
    file.touch()
    units = [RemovalItem("unit", name) for name in (file.name, "lockstep-back.timer")]
    assert remove_items(paths, *units) == []
    assert f"systemctl disable -- {file.name}" in systemd.calls
    assert f"systemctl stop -- {file.name} lockstep-back.timer" in systemd.calls


@pytest.mark.parametrize("kind", ["file", "original"])
def test_addresses_of_before_are_applied_and_none_are_taken(paths, monkeypatch, kind):
    programs: list[str] = []

    def run(argv: list[str], *_: float, **__: object) -> subprocess.CompletedProcess[str]:
        programs.append(argv[0])
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr("lockstep.onhost.removal.actions.runner.run", run)
    path = "/etc/netplan/40-cx7.yaml"
    own_file, copy = (
        paths.root / f"{folder}{path}"[1:] for folder in ("", ownership.ADOPTED_FOLDER)
    )
    for file, text in ((own_file, "ours"), (copy, "mine")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    assert remove_items(paths, RemovalItem(kind, path)) == []
    assert ("netplan" in programs) == own_file.exists() == (kind == "original")
    assert not own_file.exists() or own_file.read_text() == "mine"
