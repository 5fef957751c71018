"""The engines of a venv and of images: each gets its recipes as a question."""

import hashlib
import json
from typing import Any

import pytest
from a_host import Host, run
from a_spark import pins_for, spark

from lockstep.host.desired_state import DesiredState
from lockstep.host.specs import engine_check_hash, engine_spec
from lockstep.tasks.run import run_state as tasks_run

PLAN = spark()
PINS = pins_for(PLAN)
RUN = DesiredState(PLAN, PINS)
SPEC = engine_spec(PLAN, PINS)
JOB = "/usr/bin/python3 /usr/local/lib/lockstep job run"
PROGRAM = "--uid lockstep -- /usr/bin/python3 /usr/local/lib/lockstep engine-build"
WHOLE: dict[str, Any] = {
    "check": {"asked": engine_check_hash(SPEC), "faults": [], "version": "0.19.2"},
    "current": SPEC["id"],
}


@pytest.fixture(autouse=True)
def _this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks_run._runs, "spark1", RUN)


# The classes of a checkpoint are told by its configuration, and that comes before the weights.
CHECK = [
    f"{JOB} configurations --uid lockstep -- /usr/bin/python3 "
    "/usr/local/lib/lockstep fetch-weights /etc/lockstep/weights.json "
    "--token-file /etc/lockstep/hub-token --small",
    f"{JOB} engine-check {PROGRAM} check",
]
ACTIVATE = [f"{JOB} engine-activate {PROGRAM} activate"]


@pytest.mark.parametrize(
    ("change", "check", "activation"),
    [
        ({}, [], []),
        ({"check": None}, CHECK, []),
        ({"check": {**WHOLE["check"], "faults": ["x"]}}, CHECK, []),
        ({"check": {**WHOLE["check"], "asked": "another question"}}, CHECK, []),
        # It becomes the current one with the units that use it.
        ({"current": "older"}, [], ACTIVATE),
        ({"current": None}, [], ACTIVATE),
    ],
)
def test_the_engine_is_asked_again_when_anything_changed_and_becomes_the_current_one_once(
    change: dict[str, Any], check: list[str], activation: list[str]
) -> None:
    host = Host({"environments": {**WHOLE, **change}})
    assert run("venv_engine.check", host) == check
    assert host.noop_messages == ([] if check else ["vLLM 0.19.2 accepts 2 recipe(s)"])
    host.noop_messages.clear()
    assert run("venv_engine.activate", host) == activation
    assert bool(host.noop_messages) != bool(activation)


NEW: dict[str, Any] = {"check": {"version": "0.19.2"}, "images": dict.fromkeys(RUN.engine_images)}


def image_answers(**changes: Any) -> dict[str, Any]:
    """The records of the host when every image has accepted its recipes, with changes in each."""
    answers = {}
    for digest, (_, engine) in RUN.engine_images.items():
        question = hashlib.sha256(RUN.image_questions[digest].encode()).hexdigest()
        answer = {"engine": engine, "version": "0.32.0", "asked": question}
        answers[digest] = {**answer, "faults": [], "unanswered": None, **changes}
    return {**NEW, "images": answers}


def test_what_could_not_be_asked_is_not_called_accepted() -> None:
    host = Host({"environments": image_answers(unanswered="no libcuda.so.1")})
    assert run("image_recipe_check.check_recipes", host) == []
    assert host.noop_messages[0].endswith(f", {len(RUN.engine_images)} of which could not be asked")


@pytest.mark.parametrize(
    "known_answer",
    [NEW, image_answers(asked="another question"), image_answers(faults=["refused"])],
)
def test_a_new_image_a_changed_recipe_and_a_refused_one_are_asked_about(known_answer: Any) -> None:
    commands = run("image_recipe_check.check_recipes", Host({"environments": known_answer}))
    for write_command, check_command, (digest, (reference, engine)) in zip(
        commands[::2], commands[1::2], RUN.engine_images.items(), strict=True
    ):
        [file] = write_command["files"]
        assert file["path"].endswith(f"/questions/{digest.replace(':', '-')}.json")
        assert file["text"] == RUN.image_questions[digest]
        assert check_command.endswith(f" image-check {reference} {engine}")


def test_the_question_is_what_the_unit_will_run() -> None:
    [qwen, fallback] = next(
        json.loads(text)
        for digest, text in RUN.image_questions.items()
        if RUN.engine_images[digest][1] == "vllm"
    )
    launchers = [file.text for file in RUN.files("services") if "qwen36-launch" in file.path]
    for question, launcher in zip((qwen, fallback), launchers, strict=True):
        assert all(word in launcher for word in question["argv"])
    assert "--moe-backend" in fallback["argv"]
