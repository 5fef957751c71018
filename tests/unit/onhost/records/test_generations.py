"""Records of what a host was brought to: by the deploy's side and on the host."""

from __future__ import annotations

import io
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_spark import pins_for, spark

from lab import RECIPES
from lockstep.defaults import models
from lockstep.host.desired_state import DesiredState
from lockstep.lock.pins import ImagePin, Pins
from lockstep.onhost.core import errors, layout
from lockstep.onhost.records import generations

MODELS: dict[str, Any] = {**models, "mistral": {"recipe": "mistral-sglang-nx", "unit": "sglang"}}


def intended_host(pins: Pins | None = None, start_timeout_s: int = 1800) -> DesiredState:
    """A host; among its recipes is one that borrows a file from another repository."""
    qwen = {**MODELS["qwen"], "start_timeout_s": start_timeout_s}
    plan = spark(recipe_folders=(RECIPES,), models={**MODELS, "qwen": qwen})
    return DesiredState(plan, pins or pins_for(plan))


THIS = intended_host()


def a_record(digest: str, lock: str = "l", **changes: Any) -> dict[str, Any]:
    return {"engine": {}, "images": [], "weights": {}, "files": [], **changes} | {
        "digest": digest,
        "lock": lock,
    }


def test_contents_name_everything_that_a_host_needs_to_serve_as_it_does() -> None:
    contents = THIS.generation_document
    assert contents["engine"] == {"folder": "/opt/lockstep/engines", "id": THIS.engine_id}
    assert contents["images"] == sorted(THIS.images) != []
    # Borrowed files are of another repository, which must stay too.
    assert f"mistralai/Mistral-Small-4-119B-2603@{40 * 'c'}" in contents["weights"]["revisions"]
    assert contents["files"] == [
        {
            "path": file.path,
            "text": file.text,
            "mode": file.mode,
            "owner": "root",
            "group": "root",
        }
        for file in THIS.files("services")
    ]


def test_another_lock_with_the_same_contents_is_the_same_generation() -> None:
    pins = THIS.pins
    unused_pins = {"ghcr.io/a/b:main": ImagePin("sha256:" + 64 * "9", "aarch64", 1)}
    first, second = (
        intended_host(lock_pins).generation_document
        for lock_pins in (pins, replace(pins, images={**pins.images, **unused_pins}))
    )
    assert first["digest"] == second["digest"]
    assert first["lock"] != second["lock"]
    wheels = {
        key: replace(
            pin, packages=tuple(replace(package, sha256=64 * "f") for package in pin.packages)
        )
        for key, pin in pins.python.items()
    }
    another = intended_host(replace(pins, python=wheels))
    assert another.engine_id != THIS.engine_id
    assert another.generation_document["digest"] != first["digest"]
    assert intended_host(pins, start_timeout_s=60).generation_document["digest"] != first["digest"]


def test_records_are_numbered_and_the_newest_is_the_present(tmp_path: Path) -> None:
    paths = layout.Paths(tmp_path)
    assert generations.readable_records(paths) == []
    for digest in ("one", "two"):
        generations.add_record(paths, a_record(digest))
    assert [item["number"] for item in generations.readable_records(paths)] == [2, 1]
    assert [generations.has_readable_record(paths, number) for number in (0, 1, 3)] == [
        False,
        True,
        False,
    ]
    [path] = paths.generations.glob("0002.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert generations.newest_record(paths) == generations.readable_records(paths)[0]
    # Going back makes a record, and not a third generation.
    generations.add_record(paths, a_record("one"))
    newest_first = generations.readable_records(paths)
    assert [item["number"] for item in newest_first] == [3, 2, 1]
    assert [item["number"] for item in generations.distinct_records(newest_first)] == [3, 2]


def test_what_a_deploy_began_is_no_record_until_it_has_ended_well(tmp_path: Path) -> None:
    paths = layout.Paths(tmp_path)
    generations.add_record(paths, a_record("one", files=[{"path": "/old"}]))
    assert generations.begun_record(paths) is None
    generations.record_begun(paths, a_record("one", lock="newer"))
    assert (generations.last_written_record(paths) or {})["number"] == 1
    generations.record_begun(paths, a_record("two", files=[{"path": "/new"}]))
    assert generations.newest_number(paths) == 1 and len(generations.readable_records(paths)) == 1
    assert generations.known_paths(paths) == {"/new", "/old"}
    deployed_record = generations.last_written_record(paths)
    assert deployed_record is not None and (
        deployed_record["number"],
        deployed_record["digest"],
    ) == (2, "two")
    assert stat.S_IMODE((paths.generations / "begun.json").stat().st_mode) == 0o600
    generations.add_record(paths, a_record("two", files=[{"path": "/new"}]))
    assert generations.newest_number(paths) == 2 and generations.begun_record(paths) is None


def test_a_deploy_back_to_what_is_on_record_ends_what_another_began(tmp_path: Path) -> None:
    paths = layout.Paths(tmp_path)
    first = generations.add_record(paths, a_record("one"), note="first")
    for again in (a_record("one"), a_record("one", lock="newer")):
        generations.record_begun(paths, a_record("two"))
        record = generations.add_record(paths, again)
        assert {**record, "lock": "l"} == first and record["lock"] == again["lock"]
        assert generations.readable_records(paths) == [record]
        assert generations.begun_record(paths) is None


def test_the_same_contents_make_no_record_and_another_lock_is_noted_in_it(tmp_path: Path) -> None:
    paths = layout.Paths(tmp_path)
    first = generations.add_record(paths, a_record("one", lockstep="0.1.0"), note="first")
    assert first["lockstep"] == "0.1.0"
    assert generations.add_record(paths, a_record("one"), note="again") == first
    changed_record = generations.add_record(paths, a_record("one", lock="other", lockstep="0.2.0"))
    assert changed_record == {**first, "lock": "other", "lockstep": "0.2.0"}
    assert generations.readable_records(paths) == [changed_record]


@pytest.mark.parametrize("text", ["", "[]", '{"number": 9}', "{"])
def test_a_file_that_is_no_record_is_passed_over(tmp_path: Path, text: str) -> None:
    paths = layout.Paths(tmp_path)
    generations.add_record(paths, a_record("one"))
    (paths.generations / "0009.json").write_text(text)
    assert [item["number"] for item in generations.readable_records(paths)] == [1]


def test_the_program_records_and_lists_without_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = layout.Paths(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(THIS.generation_document)))
    assert generations.main(["record"], paths) == 0
    assert capsys.readouterr().out == "generation 1\n"
    assert generations.main(["list"], paths) == 0
    [listing] = json.loads(capsys.readouterr().out)
    written_paths = [file.path for file in THIS.files("services")]
    assert (listing["number"], listing["files"]) == (1, written_paths)
    assert generations.main(["forget"], paths) == 2


@pytest.mark.parametrize("text", ["no", '{"digest": "x"}'])
def test_the_program_refuses_what_is_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    with pytest.raises(errors.Problem, match="standard input") as error:
        generations.main(["record"], layout.Paths(tmp_path))
    assert error.value.code == 2
