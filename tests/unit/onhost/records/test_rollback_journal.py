"""Records of what a host was brought to; the journal of a deploy brings back what was before."""

import io
import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from a_spark import pins_for, spark

from lab import RECIPES
from lockstep.defaults import models
from lockstep.host.desired_state import DesiredState
from lockstep.lock.pins import ImagePin
from lockstep.onhost.core import errors, layout
from lockstep.onhost.records import generations, rollback_journal
from lockstep.onhost.records.ownership import MARK

PROGRAM = "/usr/local/lib/lockstep/program.py"
SYSCTL, UNIT = "/etc/sysctl.d/60-ours.conf", "/etc/systemd/system/a.service"
FILES = (PROGRAM, SYSCTL, UNIT)


@pytest.fixture
def host(tmp_path, systemd) -> layout.Paths:
    """A host with one generation on record."""
    systemd.unit("a.service", ActiveState="active", UnitFileState="enabled")
    host = layout.Paths(tmp_path / "host")
    add_generation(host, "one")
    return host


def add_generation(host: layout.Paths, digest: str, **engine: str) -> None:
    contents = {"engine": engine, "images": [], "weights": {}, "files": []}
    generations.add_record(host, {"digest": digest, **contents})


def at(host: layout.Paths, name: str) -> Path:
    return host.root / name.lstrip("/")


def write(host: layout.Paths, text: str, *names: str) -> None:
    """Do what a deploy does to files: note, then write."""
    rollback_journal.note_before_change(host, names)
    for name in names:
        at(host, name).parent.mkdir(parents=True, exist_ok=True)
        at(host, name).write_text(f"# {MARK}: {text}\n")


def finish_deploy(host: layout.Paths, generation: str) -> None:
    add_generation(host, generation)
    rollback_journal.finish(host)


def texts(host: layout.Paths, *names: str) -> list[str | None]:
    places = [at(host, name) for name in names]
    return [at.read_text().strip().rpartition(" ")[2] if at.exists() else None for at in places]


def return_from_deploy(host: layout.Paths) -> None:
    document = rollback_journal.unfinished_journal(host)
    assert document is not None
    rollback_journal.restore_files(host, document)
    rollback_journal.discard(host)


def test_files_of_all_stages_return_with_modes_and_ends_of_lines_and_new_ones_go(host):
    """So they do where a deploy was cut off and the next one finds half of it."""
    write(host, "old", *FILES)
    rollback_journal.discard(host)
    at(host, SYSCTL).chmod(0o640)
    raw = at(host, "/etc/raw")
    raw.write_bytes(b"a=1\r\nb=2\r\n\xff")
    write(host, "new", *FILES, "/etc/new.conf", "/etc/raw")
    at(host, SYSCTL).chmod(0o600)
    write(host, "newer", *FILES, "/etc/newer.conf")
    return_from_deploy(host)
    assert texts(host, *FILES) == ["old"] * 3
    assert texts(host, "/etc/new.conf", "/etc/newer.conf") == [None, None]
    assert stat.S_IMODE(at(host, SYSCTL).stat().st_mode) == 0o640
    assert raw.read_bytes() == b"a=1\r\nb=2\r\n\xff"


def test_our_programs_return_last_and_compiled(host, monkeypatch):
    for text in ("old", "new"):
        rollback_journal.discard(host)
        write(host, text, PROGRAM, UNIT, "/var/ours")
    order, restore = [], rollback_journal._restore_file
    monkeypatch.setattr(
        rollback_journal, "_restore_file", lambda at, was: (order.append(at.name), restore(at, was))
    )
    return_from_deploy(host)
    assert order[-1] == "program.py" and len(order) == 3
    assert list(at(host, PROGRAM).parent.glob("__pycache__/program.*.pyc"))


def test_links_lead_where_they_led(host):
    """The engine's own link: tests/unit/onhost/rollout/test_rollout.py."""
    link = host.root / "usr/local/lib/lockstep/uv"
    link.parent.mkdir(parents=True)
    link.symlink_to("old")
    rollback_journal.note_before_change(host, ["/usr/local/lib/lockstep/uv"])
    link.unlink()
    link.symlink_to("new")
    return_from_deploy(host)
    assert str(link.readlink()) == "old"


def test_nothing_is_restored_where_somebody_elses_file_has_come(host):
    rollback_journal.note_before_change(host, ["/etc/new.conf"])
    write(host, "new", "/etc/a")
    at(host, "/etc/new.conf").write_text("by hand\n")
    with pytest.raises(errors.Problem, match="nothing was changed"):
        return_from_deploy(host)
    assert texts(host, "/etc/a", "/etc/new.conf") == ["new", "hand"]


def test_units_are_noted_as_they_ran_before_the_first_change(host, systemd):
    write(host, "new", UNIT)
    systemd.unit("a.service")
    write(host, "newer", UNIT)
    document = rollback_journal.unfinished_journal(host)
    assert document["units"] == {"a.service": {"enabled": True, "up": True}}
    assert rollback_journal.absent_units(document) == {"a.service"}


def test_no_secret_is_copied_and_a_first_deploy_has_nothing_to_return_to(tmp_path, host):
    names = [f"/etc/lockstep/secrets/{name}" for name in ("pair.key", "spark1.pem", "api-key")]
    write(host, "secret", *names, "/etc/a")
    assert list(rollback_journal.unfinished_journal(host)["before"]) == ["/etc/a"]
    assert stat.S_IMODE(host.begun_journal.stat().st_mode) == 0o600
    first = layout.Paths(tmp_path / "first")
    rollback_journal.note_before_change(first, ["/etc/a"])
    assert rollback_journal.unfinished_journal(first) is None and not first.state.exists()


def test_the_way_back_from_a_generation_has_all_that_its_deploys_changed(host):
    write(host, "one", "/etc/a", "/etc/b")
    rollback_journal.finish(host)
    assert rollback_journal.newest_journal(host) is None, "how the first one came is not known"
    write(host, "two", "/etc/a")
    finish_deploy(host, "two")
    # Other files of the same generation, as of another Lockstep.
    write(host, "three", "/etc/a", "/etc/b")
    rollback_journal.finish(host)
    assert rollback_journal.unfinished_journal(host) is None
    document = rollback_journal.newest_journal(host)
    assert document["since"] == 1
    rollback_journal.restore_files(host, document)
    assert texts(host, "/etc/a", "/etc/b") == ["one", "one"]


def test_a_journal_of_another_generation_or_version_is_none(host):
    write(host, "two", "/etc/a")
    finish_deploy(host, "two")
    # A Lockstep from before the journal.
    add_generation(host, "three")
    assert rollback_journal.newest_journal(host) is None
    host.begun_journal.write_text(json.dumps({"since": 1}))
    assert rollback_journal.unfinished_journal(host) is None


def intended_host(pins=None, start_timeout_s: int = 1800) -> DesiredState:
    """A host; among its recipes is one that borrows a file from another repository."""
    mistral = {"recipe": "mistral-sglang-nx", "unit": "sglang"}
    qwen = {**models["qwen"], "start_timeout_s": start_timeout_s}
    plan = spark(recipe_folders=(RECIPES,), models={**models, "qwen": qwen, "mistral": mistral})
    return DesiredState(plan, pins or pins_for(plan))


PRESENT = intended_host()


def a_record(digest: str, lock: str = "l", **changes) -> dict:
    contents = {"engine": {}, "images": [], "weights": {}, "files": []}
    return {**contents, **changes, "digest": digest, "lock": lock}


def numbers(records: list[dict]) -> list[int]:
    return [record["number"] for record in records]


def test_contents_name_everything_that_a_host_needs_to_serve_as_it_does():
    contents = PRESENT.generation_document
    assert contents["engine"] == {"folder": "/opt/lockstep/engines", "id": PRESENT.engine_id}
    assert contents["images"] == sorted(PRESENT.images) != []
    # Borrowed files are of another repository, which must stay too.
    assert f"mistralai/Mistral-Small-4-119B-2603@{40 * 'c'}" in contents["weights"]["revisions"]
    files = [(file["path"], file["text"], file["mode"]) for file in contents["files"]]
    assert files == [(file.path, file.text, file.mode) for file in PRESENT.files("services")]


def test_another_lock_with_the_same_contents_is_the_same_generation():
    pins, first = PRESENT.pins, PRESENT.generation_document
    unused_pins = {"ghcr.io/a/b:main": ImagePin("sha256:" + 64 * "9", "aarch64", 1)}
    second = intended_host(replace(pins, images={**pins.images, **unused_pins})).generation_document
    assert first["digest"] == second["digest"] and first["lock"] != second["lock"]
    slower = intended_host(pins, start_timeout_s=60).generation_document
    assert slower["digest"] != first["digest"]


def test_records_are_numbered_and_the_newest_is_the_present(paths):
    assert generations.readable_records(paths) == []
    for digest in ("one", "two"):
        generations.add_record(paths, a_record(digest))
    assert numbers(generations.readable_records(paths)) == [2, 1]
    # A file that is no record is passed over.
    for number, text in enumerate(("[]", '{"number": 9}', "{"), 7):
        (paths.generations / f"000{number}.json").write_text(text)
    is_readable = [generations.has_readable_record(paths, number) for number in (0, 1, 3)]
    assert is_readable == [False, True, False]
    [path] = paths.generations.glob("0002.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert generations.newest_record(paths) == generations.readable_records(paths)[0]
    # Going back makes a record, and not a third generation.
    generations.add_record(paths, a_record("one"))
    newest_first = generations.readable_records(paths)
    assert numbers(newest_first) == [3, 2, 1]
    assert numbers(generations.distinct_records(newest_first)) == [3, 2]


def test_what_a_deploy_began_is_no_record_until_it_has_ended_well(paths):
    generations.add_record(paths, a_record("one", files=[{"path": "/old"}]))
    assert generations.begun_record(paths) is None
    generations.record_begun(paths, a_record("one", lock="newer"))
    assert generations.last_written_record(paths)["number"] == 1
    generations.record_begun(paths, a_record("two", files=[{"path": "/new"}]))
    assert generations.newest_number(paths) == 1 and len(generations.readable_records(paths)) == 1
    assert generations.known_paths(paths) == {"/new", "/old"}
    deployed_record = generations.last_written_record(paths)
    assert (deployed_record["number"], deployed_record["digest"]) == (2, "two")
    assert stat.S_IMODE((paths.generations / "begun.json").stat().st_mode) == 0o600
    generations.add_record(paths, a_record("two", files=[{"path": "/new"}]))
    assert generations.newest_number(paths) == 2 and generations.begun_record(paths) is None


def test_the_same_contents_make_no_record_note_another_lock_and_end_what_was_begun(paths):
    first = generations.add_record(paths, a_record("one", lockstep="0.1.0"), note="first")
    assert first["lockstep"] == "0.1.0"
    for lock, lockstep in (("l", "0.1.0"), ("newer", "0.2.0")):
        generations.record_begun(paths, a_record("two"))
        again = a_record("one", lock=lock, lockstep=lockstep)
        record = generations.add_record(paths, again, note="again")
        assert record == {**first, "lock": lock, "lockstep": lockstep}
        assert generations.readable_records(paths) == [record]
        assert generations.begun_record(paths) is None


def test_the_program_records_and_lists_without_texts(paths, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(PRESENT.generation_document)))
    assert generations.main(["record"], paths) == 0
    assert capsys.readouterr().out == "generation 1\n"
    assert generations.main(["list"], paths) == 0
    [listing] = json.loads(capsys.readouterr().out)
    written_paths = [file.path for file in PRESENT.files("services")]
    assert (listing["number"], listing["files"]) == (1, written_paths)
    assert generations.main(["forget"], paths) == 2


@pytest.mark.parametrize("text", ["no", '{"digest": "x"}'])
def test_the_program_refuses_what_is_no_record(paths, monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    with pytest.raises(errors.Problem, match="standard input") as error:
        generations.main(["record"], paths)
    assert error.value.code == 2
