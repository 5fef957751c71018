"""Every program that writes for a deploy notes what was there, and the journal brings it back."""

from __future__ import annotations

import getpass
import grp
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import layout
from lockstep.onhost.records import checked_file_writes, generations, rollback_journal
from lockstep.onhost.records.ownership import MARK

USER = getpass.getuser()
GROUP = grp.getgrgid(os.getgid()).gr_name
PROGRAM = "/usr/local/lib/lockstep/program.py"
SYSCTL, UNIT, LINK = "/etc/sysctl.d/60-ours.conf", "/etc/systemd/system/a.service", "/usr/uv"
FILES = (PROGRAM, SYSCTL, UNIT)


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemd:
    fake = FakeSystemd(tmp_path / "systemd", monkeypatch)
    fake.unit("a.service", ActiveState="active", UnitFileState="enabled")
    return fake


@pytest.fixture
def paths(tmp_path: Path, systemd: FakeSystemd) -> layout.Paths:
    """A host with one generation on record."""
    paths = layout.Paths(tmp_path / "host")
    add_generation(paths, "one")
    return paths


def add_generation(paths: layout.Paths, digest: str) -> None:
    contents = {"engine": {}, "images": [], "weights": {}, "files": []}
    generations.add_record(paths, {"digest": digest, **contents})


def write(paths: layout.Paths, text: str, *names: str) -> None:
    """Do what a deploy does to files: note, then write."""
    rollback_journal.note_before_change(paths, names)
    for name in names:
        path = paths.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {MARK}: {text}\n")


def texts(paths: layout.Paths, *names: str) -> list[str | None]:
    found = [paths.root / name.lstrip("/") for name in names]
    return [
        path.read_text().strip().rpartition(" ")[2] if path.exists() else None for path in found
    ]


def return_from_deploy(paths: layout.Paths) -> None:
    document = rollback_journal.unfinished_journal(paths)
    assert document is not None
    rollback_journal.restore_files(paths, document)
    rollback_journal.discard(paths)


def test_files_of_all_stages_return_with_their_modes_and_new_ones_go(paths: layout.Paths) -> None:
    write(paths, "old", *FILES)
    rollback_journal.discard(paths)
    (paths.root / SYSCTL.lstrip("/")).chmod(0o640)
    write(paths, "new", *FILES, "/etc/new.conf")
    (paths.root / SYSCTL.lstrip("/")).chmod(0o600)
    write(paths, "newer", *FILES)
    return_from_deploy(paths)
    assert texts(paths, *FILES, "/etc/new.conf") == ["old", "old", "old", None]
    assert stat.S_IMODE((paths.root / SYSCTL.lstrip("/")).stat().st_mode) == 0o640


def test_our_programs_return_last_and_compiled(
    paths: layout.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    (paths.root / PROGRAM.lstrip("/")).parent.mkdir(parents=True)
    (paths.root / PROGRAM.lstrip("/")).write_text("old = 1\n")
    write(paths, "old", UNIT, "/var/ours")
    rollback_journal.discard(paths)
    write(paths, "new", PROGRAM, UNIT, "/var/ours")
    order = []
    restore = rollback_journal._restore_file
    monkeypatch.setattr(
        rollback_journal, "_restore_file", lambda at, was: (order.append(at.name), restore(at, was))
    )
    return_from_deploy(paths)
    assert order[-1] == "program.py" and len(order) == 3
    assert list((paths.root / PROGRAM.lstrip("/")).parent.glob("__pycache__/program.*.pyc"))


def test_a_link_leads_where_it_led(paths: layout.Paths) -> None:
    link = paths.root / "usr/local/lib/lockstep/uv"
    link.parent.mkdir(parents=True)
    link.symlink_to("uv-1")
    rollback_journal.note_before_change(paths, ["/usr/local/lib/lockstep/uv"])
    link.unlink()
    link.symlink_to("uv-2")
    return_from_deploy(paths)
    assert str(link.readlink()) == "uv-1"


def test_the_link_to_the_engine_is_that_of_the_newest_record(paths: layout.Paths) -> None:
    record = generations.newest_record(paths)
    assert record is not None
    engines = paths.root / "opt/engines"
    engines.mkdir(parents=True)
    (engines / "current").symlink_to("old")
    generations.add_record(
        paths, {**record, "digest": "two", "engine": {"folder": "/opt/engines", "id": "old"}}
    )
    rollback_journal.note_before_change(paths, ["/etc/a"])
    (engines / "current").unlink()
    (engines / "current").symlink_to("new")
    return_from_deploy(paths)
    assert str((engines / "current").readlink()) == "old"
    # One that leads there is left alone, with its owner.
    link = (engines / "current").lstat()
    rollback_journal.note_before_change(paths, ["/etc/a"])
    return_from_deploy(paths)
    assert (engines / "current").lstat() == link


def test_the_ends_of_lines_are_those_of_before(paths: layout.Paths) -> None:
    file = paths.root / "etc/a"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"a=1\r\nb=2\r\n\xff")
    rollback_journal.note_before_change(paths, ["/etc/a"])
    write(paths, "new", "/etc/a")
    return_from_deploy(paths)
    assert file.read_bytes() == b"a=1\r\nb=2\r\n\xff"


def test_units_are_noted_as_they_ran_before_the_first_change(
    paths: layout.Paths, systemd: FakeSystemd
) -> None:
    write(paths, "new", UNIT)
    systemd.unit("a.service")
    write(paths, "newer", UNIT)
    document = rollback_journal.unfinished_journal(paths)
    assert document is not None
    assert document["units"] == {"a.service": {"enabled": True, "up": True}}
    assert rollback_journal.absent_units(document) == {"a.service"}


@pytest.mark.parametrize("name", ["cluster-pair.key", "peer-agent-spark1.pem", "api-key"])
def test_no_secret_is_copied(paths: layout.Paths, name: str) -> None:
    write(paths, "secret", f"/etc/lockstep/secrets/{name}", "/etc/a")
    document = rollback_journal.unfinished_journal(paths)
    assert document is not None and list(document["before"]) == ["/etc/a"]
    assert stat.S_IMODE(paths.begun_journal.stat().st_mode) == 0o600


def test_a_first_deploy_has_nothing_to_return_to(tmp_path: Path, systemd: FakeSystemd) -> None:
    paths = layout.Paths(tmp_path / "host")
    rollback_journal.note_before_change(paths, ["/etc/a"])
    assert rollback_journal.unfinished_journal(paths) is None and not paths.state.exists()


def test_the_way_back_from_a_generation_has_all_that_its_deploys_changed(
    paths: layout.Paths,
) -> None:
    write(paths, "one", "/etc/a", "/etc/b")
    rollback_journal.finish(paths)
    assert rollback_journal.newest_journal(paths) is None, (
        "how the first generation came is not known"
    )
    write(paths, "two", "/etc/a")
    add_generation(paths, "two")
    rollback_journal.finish(paths)
    # Other files of the same generation, as of another Lockstep.
    write(paths, "three", "/etc/a", "/etc/b")
    rollback_journal.finish(paths)
    assert rollback_journal.unfinished_journal(paths) is None
    document = rollback_journal.newest_journal(paths)
    assert document is not None and document["since"] == 1
    rollback_journal.restore_files(paths, document)
    assert texts(paths, "/etc/a", "/etc/b") == ["one", "one"]


def test_the_way_back_of_another_generation_is_none(paths: layout.Paths) -> None:
    write(paths, "two", "/etc/a")
    add_generation(paths, "two")
    rollback_journal.finish(paths)
    # A Lockstep from before the journal.
    add_generation(paths, "three")
    assert rollback_journal.newest_journal(paths) is None


def test_the_journal_of_a_deploy_that_was_cut_off_goes_on_in_the_next(paths: layout.Paths) -> None:
    write(paths, "old", "/etc/a")
    rollback_journal.discard(paths)
    write(paths, "half", "/etc/a")
    write(paths, "new", "/etc/a", "/etc/b")
    return_from_deploy(paths)
    assert texts(paths, "/etc/a", "/etc/b") == ["old", None]


def test_one_that_another_version_wrote_otherwise_counts_as_missing(paths: layout.Paths) -> None:
    paths.begun_journal.write_text(json.dumps({"since": 1}))
    assert rollback_journal.unfinished_journal(paths) is None


def test_the_writer_of_files_notes_files_links_and_removals_first(
    tmp_path: Path, paths: layout.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[Any] = []

    def note(_: layout.Paths, names: list[str]) -> None:
        notes.append((names, [path.name for path in sorted(folder.iterdir())]))

    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "gone").write_text(f"# {MARK}\n")
    monkeypatch.setattr(rollback_journal, "note_before_change", note)
    file = {"path": str(folder / "a.py"), "text": "", "mode": "0644", "owner": USER}
    with pytest.raises(SystemExit) as exit_error:
        checked_file_writes.answer_request(
            {
                "files": [{**file, "group": GROUP}],
                "remove": [str(folder / "gone")],
                "links": {str(folder / "link"): "a.py"},
            }
        )
    assert exit_error.value.code == 0
    assert notes == [([str(folder / name) for name in ("a.py", "gone", "link")], ["gone"])]
    assert not (folder / "gone").exists() and (folder / "link").is_symlink()
