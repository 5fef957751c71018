"""Memory as an engine counts it: a start with the least that is enough, and ends by the watch.

The tests go from one to the next, so that a model which one of them made hot serves the next.
"""

import copy
import re

import draining
import pytest
import runner
from stack import until

USUAL = "118"


@pytest.fixture(scope="module")
def available(stack, first):
    """Set the available memory of the first host; usual memory and no hot model afterwards."""
    yield lambda gib: print(stack.lab("memory", "spark1", "--available", gib))
    stack.lab("memory", "spark1", "--available", USUAL)
    stack.spark1.switch("none")


@pytest.fixture
def qwen(stack, available):
    """Make qwen hot with the usual memory, if the test before left another state."""
    available(USUAL)
    if stack.spark1.status()["hot"] != "qwen":
        assert stack.spark1.switch("qwen").code == 0


def test_what_starts_with_the_least_that_is_said_to_be_enough_is_not_ended_by_the_memory_watch(
    stack, available
):
    """The stand-in takes all that it was promised, beside the memory watch.

    Other figures: tests/unit/onhost/switching/test_promises.py.
    """
    host, needed_gib = stack.spark1, 75.0
    assert host.switch("none").code == 0
    assert host.status()["models"]["qwen"]["needs_gib"] == needed_gib
    available(f"{needed_gib + 0.1:.1f}")
    answer = host.switch("qwen")
    assert answer.code == 0, answer.text
    status = host.status()["models"]["qwen"]
    assert (status["state"], status["memory_kill"]) == ("hot", None)
    host.logs(f"{needed_gib} GiB needed", "-u vllm-qwen36")


def test_with_docker_frozen_an_engine_in_a_container_is_ended_and_that_is_told_everywhere(
    stack, available, qwen
):
    host = stack.spark1
    group = "/sys/fs/cgroup/system.slice/system-lockstep.slice/system-lockstep-vllm.qwen36.slice"
    holding = 118 - host.status()["memory_gib"]["available"]
    alive = f"cat {group}/docker-*.scope/cgroup.procs 2>/dev/null || true"
    assert len(host.root(alive).split()) > 1
    assert host.show("system-lockstep.slice", "MemorySwapMax") == "0"
    began = host.root("date +%s").strip()
    host.root("kill -STOP $(cat /run/docker.pid)")
    try:
        available(f"{holding + 3:.1f}")
        until(lambda: not host.root(alive).split(), "the engine is gone")
    finally:
        host.root("kill -CONT $(cat /run/docker.pid)")
    available(USUAL)
    until(lambda: host.status()["models"]["qwen"]["memory_kill"], "its end is told")
    until(lambda: "NO MODEL IS HOT" in str(host.status()["last_switch"]), "nothing takes its place")
    log = host.logs("the memory watch ended it", "-u lockstep-memory", f"--since @{began}")
    assert "not killed" not in log
    why = host.status()["models"]["qwen"]["memory_kill"].partition(";")[0]
    assert re.fullmatch(
        r"the memory watch .* serving: [23]\.\d GiB available, below the minimum of 4\.0 GiB", why
    )
    assert why in log
    assert why in " ".join(host.switch("status").out.split())
    assert why in " ".join(stack.diff("--limit", host.name).out.split())
    answer = host.switch("qwen")
    assert answer.code == 0 and f"last time {why}" in " ".join(answer.text.split())
    assert host.status()["models"]["qwen"]["memory_kill"] is None
    assert "vllm-qwen36" not in host.root("ls /run/lockstep/findings")


def test_an_engine_that_fills_the_page_cache_gets_ready_with_the_guard(stack):
    """Without it the driver finds no blocks for this engine, and it waits for ever."""
    host, knobs = stack.spark1, "/run/unified-memory/standin-vllm.json"
    assert host.switch("none").code == 0
    host.root(f'echo "{{\\"streamed_gib\\": 90, \\"blocks_gib\\": 6}}" > {knobs}')
    answer = host.switch("qwen")
    host.root(f"rm {knobs}")
    host.switch("none")
    assert answer.code == 0, answer.text
    assert "page cache dropped" in " ".join(answer.text.split())


def test_an_engine_that_loads_is_ended_below_its_minimum_and_not_above_it(stack):
    """Two runs of `draining.py`: a fall below the minimum and one to a little above it.

    How late an end comes is measured by hand, on a machine with nothing else to do.
    """
    alone = copy.copy(stack)
    alone.hosts = (stack.spark1,)
    trial = runner.Trial(alone, draining.Run, seed=7)
    draining.prove(trial, [draining.Run(6), draining.Run(3, clean=True)])
    runs = trial.runs
    assert [(run.phase, run.clean) for run in runs] == [("loading", False), ("loading", True)]
    wrong = [text for text in trial.broken_rules() if draining.LATE not in text]
    assert not wrong, trial.report(draining.figures(trial))
    assert [run.least_gib < draining.MINIMUMS[run.phase] for run in runs] == [True, False]
