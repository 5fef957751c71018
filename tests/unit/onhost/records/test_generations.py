"""Records of what a host was brought to: by the deploy's side and on the host."""

import io
import json
import stat
from dataclasses import replace

import pytest
from a_spark import pins_for, spark

from lab import RECIPES
from lockstep.defaults import models
from lockstep.host.desired_state import DesiredState
from lockstep.lock.pins import ImagePin
from lockstep.onhost.core import errors
from lockstep.onhost.records import generations


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
