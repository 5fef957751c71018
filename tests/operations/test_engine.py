"""The venv engine: built by stages, used only when the engine itself accepts everything."""

from __future__ import annotations

from typing import Any

import pytest
from a_host import Host, run
from a_spark import COMMIT, pins_for, spark

from lockstep.host.desired_state import DesiredState
from lockstep.host.specs import engine_check_hash, engine_spec
from lockstep.tasks.run import run_state as tasks_run

PLAN = spark()
RUN = DesiredState(PLAN, pins_for(PLAN))
SPEC = engine_spec(PLAN, pins_for(PLAN))
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
    "environment": {"python": None, "distributions": {}, "origins": {}},
    "commits": {"vllm": None, "transformers": None},
    "unfinished": False,
    "check": None,
    "current": None,
    "images": {},
}


@pytest.fixture(autouse=True)
def _this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks_run._runs, "spark1", RUN)


def check_commands(host: Host) -> list[str]:
    return run("venv_engine.check", host)


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
    assert run("venv_engine.build_stage", host, stage=stage) == [
        f"{JOB} engine-{stage} {PROGRAM} {stage}"
    ]
    assert host.log_messages == [f"{stage}: {why}"]


# The classes of a checkpoint are told by its configuration, and that comes before the weights.
CHECK = [
    f"{JOB} configurations --uid lockstep -- /usr/bin/python3 "
    "/usr/local/lib/lockstep fetch-weights /etc/lockstep/weights.json "
    "--token-file /etc/lockstep/hub-token --small",
    f"{JOB} engine-check {PROGRAM} check",
]
ACTIVATE = f"{JOB} engine-activate {PROGRAM} activate"


@pytest.mark.parametrize(
    ("change", "commands"),
    [
        ({}, []),
        ({"check": None}, CHECK),
        ({"check": {**WHOLE["check"], "faults": ["x"]}}, CHECK),
        ({"check": {**WHOLE["check"], "asked": "another question"}}, CHECK),
        # It becomes the current one with the units that use it.
        ({"current": "older"}, []),
    ],
)
def test_the_engine_is_asked_again_when_anything_changed(
    change: dict[str, Any], commands: list[str]
) -> None:
    host = Host({"environments": {**WHOLE, **change}})
    assert check_commands(host) == commands
    assert host.noop_messages == ([] if commands else ["vLLM 0.19.2 accepts 2 recipe(s)"])


@pytest.mark.parametrize(
    ("current", "commands"), [(SPEC["id"], []), ("older", [ACTIVATE]), (None, [ACTIVATE])]
)
def test_a_checked_environment_becomes_the_current_one_once(
    current: str | None, commands: list[str]
) -> None:
    host = Host({"environments": {**WHOLE, "current": current}})
    assert run("venv_engine.activate", host) == commands
    assert bool(host.noop_messages) != bool(commands)
