"""Memory as each engine counts it: what starts with 102 GiB, and what is refused with 90."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import draining
import pytest
from stack import Stack, until

USUAL = "118"


@pytest.fixture
def available(stack: Stack, first: object) -> Iterator[Callable[[str], None]]:
    """Set what the first host has available; as usual and nothing hot afterwards."""
    yield lambda gib: print(stack.lab("memory", "spark1", "--available", gib))
    stack.lab("memory", "spark1", "--available", USUAL)
    stack.one.switch("none")


def test_the_default_target_starts_with_102_gib(
    stack: Stack, available: Callable[[str], None]
) -> None:
    available("102")
    answer = stack.one.switch("mistral")
    assert answer.code == 0, answer.text
    log = stack.one.root("journalctl -u sglang-mistral4 -b --no-pager | grep 'lockstep gate'")
    assert "95.9 GiB needed" in log


def test_with_90_gib_it_is_refused_before_what_is_hot_is_stopped(
    stack: Stack, available: Callable[[str], None]
) -> None:
    assert stack.one.switch("qwen").code == 0
    available("90")
    answer = stack.one.switch("mistral")
    assert answer.code == 1
    assert "mistral needs 95.9 GiB" in " ".join(answer.text.split())
    assert stack.one.active() == {"vllm-qwen36.service"}
    needs = {name: target["needs_gib"] for name, target in stack.one.status()["targets"].items()}
    assert (needs["mistral"], needs["qwen"]) == (95.9, 67.0)


def test_preflight_says_the_number_and_what_to_set(
    stack: Stack, available: Callable[[str], None]
) -> None:
    assert stack.one.switch("none").code == 0
    available("90")
    said = " ".join(stack.deploy().output.split())
    assert "mistral needs 95.9 GiB available to start, and 90.0 GiB are" in said
    assert '"gpu_memory_utilization": 0.77' in said


def test_an_engine_that_fills_the_page_cache_gets_ready_only_with_the_guard(stack: Stack) -> None:
    one, told = stack.one, "/etc/lockstep/targets.json"
    assert one.switch("none").code == 0
    knobs = "/run/unified-memory/standin-vllm.json"
    one.root(f'echo "{{\\"streamed_gib\\": 90, \\"blocks_gib\\": 6}}" > {knobs}')
    one.root(
        f'cp -p {told} {told}.kept; sed -i \'s/"load_free_gib": 8.0/"load_free_gib": 0/\' {told}'
    )
    journal = "journalctl -u vllm-qwen36 -b --no-pager --output=cat"
    try:
        without = one.begin("/data/scripts/llm/switch.sh qwen")
        until(lambda: "NV_ERR_NO_MEMORY" in one.root(journal), "the driver finds no blocks")
        one.root(f"mv {told}.kept {told}")
        assert one.status()["hot"] is None
        # What stops it is the page cache, and nothing else.
        one.root("echo 3 > /proc/sys/vm/drop_caches")
        assert without.wait(60) == 0
        assert one.switch("none").code == 0

        answer = one.switch("qwen")
        assert answer.code == 0, answer.text
        assert "page cache dropped" in " ".join(answer.text.split())
    finally:
        one.root(f"rm -f {knobs}; test ! -e {told}.kept || mv {told}.kept {told}")
        one.switch("none")


def test_an_engine_is_ended_below_the_floor_and_not_above_it(stack: Stack) -> None:
    """A few runs of `draining.py`: of each phase, on both hosts.

    How late an end comes is measured by hand, on a machine with nothing else to do.
    """
    runs: list[draining.Run] = []
    draining.drained(stack, [(2, False), (6, False), (3, True)], 7, runs.append)
    wrong = [run for run in runs if run.violation and not run.violation.startswith(draining.LATE)]
    assert not wrong, draining.report(runs)
    assert [run.least_gib < draining.FLOORS[run.phase] for run in runs] == [True, True, False]


def test_the_end_of_an_engine_is_told_everywhere_and_is_no_more_when_it_is_hot(
    stack: Stack, available: Callable[[str], None]
) -> None:
    one = stack.one
    assert one.switch("none").code == 0
    assert one.switch("qwen").code == 0
    holding = 118 - one.status()["memory_gib"]["available"]
    available(f"{holding + 3:.1f}")
    until(lambda: one.status()["targets"]["qwen"]["ended"], "qwen is ended")
    available(USUAL)
    until(lambda: "NO MODEL IS HOT" in str(one.status()["last_switch"]), "nothing takes its place")
    why = one.status()["targets"]["qwen"]["ended"].partition(";")[0]
    assert re.fullmatch(r"the memory floor .* serving: [23]\.\d GiB available, 4\.0 is .*", why)
    assert why in " ".join(one.switch("status").out.split())
    assert why in one.root("journalctl -u lockstep-memory -b --no-pager --output=cat")
    assert why in " ".join(stack.diff("--limit", one.name).stdout.split())
    answer = one.switch("qwen")
    assert answer.code == 0 and f"last time {why}" in " ".join(answer.text.split())
    assert one.status()["targets"]["qwen"]["ended"] is None
    assert "vllm-qwen36" not in one.root("ls /run/lockstep/ended")
