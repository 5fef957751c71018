"""The engine of each image gets its recipes as a question, once for each answer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from a_host import Host, run
from a_spark import pins_for, spark

from lockstep.host.desired_state import DesiredState
from lockstep.tasks.run import run_state as tasks_run

PLAN = spark()
_PINS = pins_for(PLAN)
# Each image has a digest of its own.
PINS = replace(
    _PINS,
    images={
        name: replace(pin, digest=f"sha256:{at:064x}")
        for at, (name, pin) in enumerate(_PINS.images.items())
    },
)
RUN = DesiredState(PLAN, PINS)
VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23"}
NEW: dict[str, Any] = {"check": {"version": "0.19.2"}, "images": dict.fromkeys(RUN.engine_images)}


def engine_answers(**changes: Any) -> dict[str, Any]:
    """The records of the host when every image has accepted its recipes."""
    images = {
        digest: {
            **{"engine": engine, "version": VERSIONS[engine], "faults": []},
            **{"asked": hashlib.sha256(RUN.image_questions[digest].encode()).hexdigest()},
            **{"unanswered": None, **changes},
        }
        for digest, (_, engine) in RUN.engine_images.items()
    }
    return {**NEW, "images": images}


@pytest.fixture(autouse=True)
def _this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks_run._runs, "spark1", RUN)


def accept_images(environments: Any) -> tuple[Host, list[Any]]:
    host = Host({"environments": environments})
    return host, run("image_recipe_check.check_recipes", host)


def test_what_could_not_be_asked_is_not_called_accepted() -> None:
    host, commands = accept_images(engine_answers(unanswered="no libcuda.so.1"))
    assert commands == []
    assert host.noop_messages[0].endswith(f", {len(RUN.engine_images)} of which could not be asked")


@pytest.mark.parametrize(
    "known_answer",
    [NEW, engine_answers(asked="another question"), engine_answers(faults=["refused"])],
)
def test_a_new_image_a_changed_recipe_and_a_refused_one_are_asked_about(known_answer: Any) -> None:
    _, commands = accept_images(known_answer)
    questions = RUN.image_questions
    for write_command, check_command, (digest, (reference, engine)) in zip(
        commands[::2], commands[1::2], RUN.engine_images.items(), strict=True
    ):
        [file] = write_command["files"]
        assert file["path"].endswith(f"/questions/{digest.replace(':', '-')}.json")
        assert file["text"] == questions[digest]
        assert check_command.endswith(f" image-check {reference} {engine}")


def test_the_question_is_what_the_unit_will_run() -> None:
    questions = RUN.image_questions
    [[qwen, fallback]] = [
        json.loads(text)
        for digest, text in questions.items()
        if RUN.engine_images[digest][1] == "vllm"
    ]
    launchers = [file.text for file in RUN.files("services") if "qwen36-launch" in file.path]
    for question, launcher in zip((qwen, fallback), launchers, strict=True):
        assert question["argv"][:2] == ["vllm", "serve"]
        assert all(word in launcher for word in question["argv"])
    assert "--moe-backend" in fallback["argv"]
