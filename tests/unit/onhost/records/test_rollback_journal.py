"""The journal of a deploy notes what was there before, and brings it back."""

import json
import stat
from pathlib import Path

import pytest

from lockstep.onhost.core import errors, layout
from lockstep.onhost.records import generations, rollback_journal
from lockstep.onhost.records.ownership import MARK

PROGRAM = "/usr/local/lib/lockstep/program.py"
SYSCTL, UNIT = "/etc/sysctl.d/60-ours.conf", "/etc/systemd/system/a.service"
FILES = (PROGRAM, SYSCTL, UNIT)


@pytest.fixture
def paths(tmp_path, systemd) -> layout.Paths:
    """A host with one generation on record."""
    systemd.unit("a.service", ActiveState="active", UnitFileState="enabled")
    paths = layout.Paths(tmp_path / "host")
    add_generation(paths, "one")
    return paths


def add_generation(paths: layout.Paths, digest: str, **engine: str) -> None:
    contents = {"engine": engine, "images": [], "weights": {}, "files": []}
    generations.add_record(paths, {"digest": digest, **contents})


def at(paths: layout.Paths, name: str) -> Path:
    return paths.root / name.lstrip("/")


def write(paths: layout.Paths, text: str, *names: str) -> None:
    """Do what a deploy does to files: note, then write."""
    rollback_journal.note_before_change(paths, names)
    for name in names:
        at(paths, name).parent.mkdir(parents=True, exist_ok=True)
        at(paths, name).write_text(f"# {MARK}: {text}\n")


def finish_deploy(paths: layout.Paths, generation: str) -> None:
    add_generation(paths, generation)
    rollback_journal.finish(paths)


def texts(paths: layout.Paths, *names: str) -> list[str | None]:
    places = [at(paths, name) for name in names]
    return [at.read_text().strip().rpartition(" ")[2] if at.exists() else None for at in places]


def return_from_deploy(paths: layout.Paths) -> None:
    document = rollback_journal.unfinished_journal(paths)
    assert document is not None
    rollback_journal.restore_files(paths, document)
    rollback_journal.discard(paths)


def test_files_of_all_stages_return_with_modes_and_ends_of_lines_and_new_ones_go(paths):
    """So they do where a deploy was cut off and the next one finds half of it."""
    write(paths, "old", *FILES)
    rollback_journal.discard(paths)
    at(paths, SYSCTL).chmod(0o640)
    raw = at(paths, "/etc/raw")
    raw.write_bytes(b"a=1\r\nb=2\r\n\xff")
    write(paths, "new", *FILES, "/etc/new.conf", "/etc/raw")
    at(paths, SYSCTL).chmod(0o600)
    write(paths, "newer", *FILES, "/etc/newer.conf")
    return_from_deploy(paths)
    assert texts(paths, *FILES) == ["old"] * 3
    assert texts(paths, "/etc/new.conf", "/etc/newer.conf") == [None, None]
    assert stat.S_IMODE(at(paths, SYSCTL).stat().st_mode) == 0o640
    assert raw.read_bytes() == b"a=1\r\nb=2\r\n\xff"


def test_our_programs_return_last_and_compiled(paths, monkeypatch):
    for text in ("old", "new"):
        rollback_journal.discard(paths)
        write(paths, text, PROGRAM, UNIT, "/var/ours")
    order, restore = [], rollback_journal._restore_file
    monkeypatch.setattr(
        rollback_journal, "_restore_file", lambda at, was: (order.append(at.name), restore(at, was))
    )
    return_from_deploy(paths)
    assert order[-1] == "program.py" and len(order) == 3
    assert list(at(paths, PROGRAM).parent.glob("__pycache__/program.*.pyc"))


def test_links_lead_where_they_led(paths):
    """The engine's own link: tests/unit/onhost/rollout/test_rollout.py."""
    link = paths.root / "usr/local/lib/lockstep/uv"
    link.parent.mkdir(parents=True)
    link.symlink_to("old")
    rollback_journal.note_before_change(paths, ["/usr/local/lib/lockstep/uv"])
    link.unlink()
    link.symlink_to("new")
    return_from_deploy(paths)
    assert str(link.readlink()) == "old"


def test_nothing_is_restored_where_somebody_elses_file_has_come(paths):
    rollback_journal.note_before_change(paths, ["/etc/new.conf"])
    write(paths, "new", "/etc/a")
    at(paths, "/etc/new.conf").write_text("by hand\n")
    with pytest.raises(errors.Problem, match="nothing was changed"):
        return_from_deploy(paths)
    assert texts(paths, "/etc/a", "/etc/new.conf") == ["new", "hand"]


def test_units_are_noted_as_they_ran_before_the_first_change(paths, systemd):
    write(paths, "new", UNIT)
    systemd.unit("a.service")
    write(paths, "newer", UNIT)
    document = rollback_journal.unfinished_journal(paths)
    assert document["units"] == {"a.service": {"enabled": True, "up": True}}
    assert rollback_journal.absent_units(document) == {"a.service"}


def test_no_secret_is_copied_and_a_first_deploy_has_nothing_to_return_to(tmp_path, paths):
    names = [f"/etc/lockstep/secrets/{name}" for name in ("pair.key", "spark1.pem", "api-key")]
    write(paths, "secret", *names, "/etc/a")
    assert list(rollback_journal.unfinished_journal(paths)["before"]) == ["/etc/a"]
    assert stat.S_IMODE(paths.begun_journal.stat().st_mode) == 0o600
    first = layout.Paths(tmp_path / "first")
    rollback_journal.note_before_change(first, ["/etc/a"])
    assert rollback_journal.unfinished_journal(first) is None and not first.state.exists()


def test_the_way_back_from_a_generation_has_all_that_its_deploys_changed(paths):
    write(paths, "one", "/etc/a", "/etc/b")
    rollback_journal.finish(paths)
    assert rollback_journal.newest_journal(paths) is None, "how the first one came is not known"
    write(paths, "two", "/etc/a")
    finish_deploy(paths, "two")
    # Other files of the same generation, as of another Lockstep.
    write(paths, "three", "/etc/a", "/etc/b")
    rollback_journal.finish(paths)
    assert rollback_journal.unfinished_journal(paths) is None
    document = rollback_journal.newest_journal(paths)
    assert document["since"] == 1
    rollback_journal.restore_files(paths, document)
    assert texts(paths, "/etc/a", "/etc/b") == ["one", "one"]


def test_a_journal_of_another_generation_or_version_is_none(paths):
    write(paths, "two", "/etc/a")
    finish_deploy(paths, "two")
    # A Lockstep from before the journal.
    add_generation(paths, "three")
    assert rollback_journal.newest_journal(paths) is None
    paths.begun_journal.write_text(json.dumps({"since": 1}))
    assert rollback_journal.unfinished_journal(paths) is None
