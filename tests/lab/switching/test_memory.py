"""Memory as each engine counts it: what starts with 96 GiB, and what is refused with 90.

The tests go from one to the next, so that a model which one of them made hot serves the next.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator

import draining
import pytest
from stack import Stack, until

USUAL = "118"


@pytest.fixture(scope="module")
def available(stack: Stack, first: object) -> Iterator[Callable[[str], None]]:
    """Set what the first host has available; as usual and nothing hot afterwards."""
    yield lambda gib: print(stack.lab("memory", "spark1", "--available", gib))
    stack.lab("memory", "spark1", "--available", USUAL)
    stack.one.switch("none")


@pytest.fixture
def qwen(stack: Stack, available: Callable[[str], None]) -> None:
    """Qwen is hot with the usual memory, from the test before where that left it so."""
    available(USUAL)
    if stack.one.status()["hot"] != "qwen":
        assert stack.one.switch("qwen").code == 0


@pytest.mark.parametrize(("name", "needed"), [("mistral", 95.9), ("qwen", 75.0)])
def test_what_starts_with_the_least_that_is_said_to_be_enough_is_not_ended_by_the_floor(
    stack: Stack, available: Callable[[str], None], name: str, needed: float
) -> None:
    """The stand-in takes all that it was promised, and the floor watches."""
    one = stack.one
    assert one.switch("none").code == 0
    assert one.status()["targets"][name]["needs_gib"] == needed
    available(f"{needed + 0.1:.1f}")
    answer = one.switch(name)
    assert answer.code == 0, answer.text
    seen = one.status()["targets"][name]
    assert (seen["state"], seen["ended"]) == ("hot", None)
    unit = {"mistral": "sglang-mistral4", "qwen": "vllm-qwen36"}[name]
    one.logs(f"{needed} GiB needed", f"-u {unit}")


def test_with_90_gib_it_is_refused_before_what_is_hot_is_stopped(
    stack: Stack, available: Callable[[str], None], qwen: None
) -> None:
    available("90")
    answer = stack.one.switch("mistral")
    assert answer.code == 1
    assert "mistral needs 95.9 GiB" in " ".join(answer.text.split())
    assert stack.one.active() == {"vllm-qwen36.service"}


def test_with_docker_frozen_an_engine_in_a_container_is_ended_and_that_is_told_everywhere(
    stack: Stack, available: Callable[[str], None], qwen: None
) -> None:
    one = stack.one
    group = "/sys/fs/cgroup/system.slice/system-lockstep.slice/system-lockstep-vllm.qwen36.slice"
    holding = 118 - one.status()["memory_gib"]["available"]
    alive = f"cat {group}/docker-*.scope/cgroup.procs 2>/dev/null || true"
    assert len(one.root(alive).split()) > 1
    assert one.show("system-lockstep.slice", "MemorySwapMax") == "0"
    began = one.root("date +%s").strip()
    one.root("kill -STOP $(cat /run/docker.pid)")
    try:
        available(f"{holding + 3:.1f}")
        until(lambda: not one.root(alive).split(), "the engine is gone")
    finally:
        one.root("kill -CONT $(cat /run/docker.pid)")
    available(USUAL)
    until(lambda: one.status()["targets"]["qwen"]["ended"], "its end is told")
    until(lambda: "NO MODEL IS HOT" in str(one.status()["last_switch"]), "nothing takes its place")
    log = one.logs("the memory floor ended it", "-u lockstep-memory", f"--since @{began}")
    assert "not killed" not in log
    why = one.status()["targets"]["qwen"]["ended"].partition(";")[0]
    assert re.fullmatch(r"the memory floor .* serving: [23]\.\d GiB available, 4\.0 is .*", why)
    assert why in log
    assert why in " ".join(one.switch("status").out.split())
    assert why in " ".join(stack.diff("--limit", one.name).stdout.split())
    answer = one.switch("qwen")
    assert answer.code == 0 and f"last time {why}" in " ".join(answer.text.split())
    assert one.status()["targets"]["qwen"]["ended"] is None
    assert "vllm-qwen36" not in one.root("ls /run/lockstep/ended")


@pytest.fixture
def ollama(stack: Stack, first: object) -> Iterator[None]:
    """Somebody else's engine, which holds 40 GiB on the GPU of the first host."""
    held = "/run/unified-memory/ollama"
    # Written under its lock: the host takes what nobody has locked for what a dead one left.
    stack.one.root(
        f"systemd-run --quiet --unit=ollama flock {held} sh -c 'echo 40 > {held}; exec sleep 3600'"
    )
    until(lambda: " 40960" in stack.one.root(f"{_APPS} --format=csv,noheader"), "it holds them")
    yield
    stack.one.root("systemctl stop ollama || true")


_APPS = "nvidia-smi --query-compute-apps=pid,process_name,used_memory"
_NAMED = (
    "ollama.service (Ollama) holds 40.0 GiB on the GPU: `ollama ps`, then `ollama stop MODEL`, or "
    "`sudo systemctl stop ollama.service`"
)


def test_an_engine_of_somebody_else_beside_a_hot_model_is_a_finding(
    stack: Stack, qwen: None, ollama: None
) -> None:
    one = stack.one
    # Our own engine is on the GPU, too.
    assert len(one.root(f"{_APPS} --format=csv,noheader").splitlines()) >= 2
    one.root("systemctl start lockstep-wedge")
    [broken] = [each for each in one.status()["problems"] if each.startswith("gpu-foreign")]
    assert "beside qwen, ollama.service (Ollama) holds 40.0 GiB on the GPU. Remedy: " in broken
    assert one.status()["held"] == [_NAMED]
    one.root("systemctl stop ollama; systemctl start lockstep-wedge")
    assert not [each for each in one.status()["problems"] if "gpu-foreign" in each]


def test_the_gate_refuses_and_names_who_holds_the_gpu(stack: Stack, ollama: None) -> None:
    one = stack.one
    assert one.switch("none").code == 0
    # The gate waits for memory that comes back; here it is not to wait long.
    gate = one.root("/usr/bin/python3 /usr/local/lib/lockstep gate mistral --wait 1 2>&1; true")
    assert "mistral needs 95.9 GiB" in gate and f"Remedy: {_NAMED}; then" in gate
    assert one.status()["held"] == [_NAMED]
    shown = " ".join(one.root("/data/scripts/llm/switch.sh status").split())
    assert _NAMED in shown and "BROKEN" not in shown


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


def test_an_engine_that_loads_is_ended_below_its_floor_and_not_above_it(stack: Stack) -> None:
    """Two runs of `draining.py`: a fall below the floor and one to a little above it.

    How late an end comes is measured by hand, on a machine with nothing else to do.
    """
    runs: list[draining.Run] = []
    alone = copy.copy(stack)
    alone.hosts = (stack.one,)
    draining.drained(alone, [(6, False), (3, True)], 7, runs.append)
    assert [(run.phase, run.clean) for run in runs] == [("loading", False), ("loading", True)]
    wrong = [run for run in runs if run.violation and not run.violation.startswith(draining.LATE)]
    assert not wrong, draining.report(runs)
    assert [run.least_gib < draining.FLOORS[run.phase] for run in runs] == [True, False]
