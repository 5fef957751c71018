"""The engines: a venv that is built by stages, and images; each gets its recipes as a question."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from a_host import Host, run
from a_spark import COMMIT, pins_for, spark

from lockstep.host.desired_state import DesiredState
from lockstep.host.specs import engine_check_hash, engine_spec
from lockstep.tasks.run import run_state as tasks_run

PLAN = spark()
_PINS = pins_for(PLAN)
# Each image has a digest of its own.
IMAGES = {
    name: replace(pin, digest=f"sha256:{at:064x}")
    for at, (name, pin) in enumerate(_PINS.images.items())
}
PINS = replace(_PINS, images=IMAGES)
RUN = DesiredState(PLAN, PINS)
SPEC = engine_spec(PLAN, PINS)
JOB = "/usr/bin/python3 /usr/local/lib/lockstep job run"
PROGRAM = "--uid lockstep -- /usr/bin/python3 /usr/local/lib/lockstep engine-build"
WHOLE: dict[str, Any] = {
    "environment": {
        "python": SPEC["python"],
        "distributions": SPEC["expected"],
        "origins": {"vllm": {"url": f"file://{SPEC['home']}/vllm"}},
    },
    "commits": {"vllm": COMMIT, "transformers": None},
    "unfinished": False,
    "check": {"asked": engine_check_hash(SPEC), "faults": [], "version": "0.19.2"},
    "current": SPEC["id"],
    "images": {},
}
EMPTY: dict[str, Any] = {
    **WHOLE,
    **{"environment": {"python": None, "distributions": {}, "origins": {}}},
    **{"commits": dict.fromkeys(WHOLE["commits"]), "check": None, "current": None},
}


@pytest.fixture(autouse=True)
def _this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks_run._runs, "spark1", RUN)


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        ("pytorch", "the venv, torch 2.10.0+cu130, torchvision 1.0"),
        ("vllm", "mistral-common 1.0, transformers 5.4.0, vllm at cccccccccccc"),
        ("flashinfer", "flashinfer-cubin 1.0, flashinfer-jit-cache 1.0, flashinfer-python 1.0"),
    ],
)
def test_a_stage_is_built_as_a_job_of_its_own_account(stage: str, why: str) -> None:
    host = Host({"environments": EMPTY})
    commands = run("venv_engine.build_stage", host, stage=stage)
    assert commands == [f"{JOB} engine-{stage} {PROGRAM} {stage}"]
    assert host.log_messages == [f"{stage}: {why}"]


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
        assert question["argv"][:2] == ["vllm", "serve"]
        assert all(word in launcher for word in question["argv"])
    assert "--moe-backend" in fallback["argv"]
