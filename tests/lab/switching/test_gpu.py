"""A GPU that is slow under its load is named, and a busy one is not. A cap: test_power."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stack import Host, Stack, until

KNOB = "http://127.0.0.1:31000/standin/knob"
ACCEPTED = "/var/lib/lockstep-deploy/accepted.json"
SLOW = ("--watts", "14", "--clock", "611", "--utilization", "96")


@pytest.fixture
def gpu(stack: Stack, first: object) -> Iterator[Callable[..., None]]:
    """Set the figures of the first host's nvidia-smi; the watch looks only on request.

    Afterwards the figures are the usual ones, and nothing is hot.
    """
    stack.spark1.root("systemctl stop lockstep-wedge.timer")
    yield lambda *options: print(stack.lab("gpu", "spark1", *options))
    stack.lab("gpu", "spark1")
    stack.spark1.root("systemctl start lockstep-wedge.service lockstep-wedge.timer")
    stack.spark1.switch("none")


def look(host: Host) -> list[str]:
    """The findings of the watch now, as its timer runs it."""
    host.root("systemctl start lockstep-wedge.service")
    codes = [status.partition(": ")[0] for status in host.status()["problems"]]
    assert [code for code in codes if not code.startswith("gpu-")] == []
    return codes


def gpu_items(stack: Stack) -> list[str]:
    """The item of each difference of spark1's GPU."""
    output = stack.diff("--json", "--limit", "spark1").stdout
    differences: list[dict[str, Any]] = json.loads(output)["differences"]
    return [difference["item"] for difference in differences if difference["kind"] == "gpu"]


def test_a_slow_spark_is_named_and_a_busy_one_is_not(
    deployed_stack: Stack, gpu: Callable[..., None]
) -> None:
    host = deployed_stack.spark1
    host.switch("none")
    assert host.switch("mistral").code == 0
    host.root("python3 /usr/local/lib/lockstep minimum --accept")
    baseline = json.loads(host.root(f"cat {ACCEPTED}"))["mistral"]
    # A GPU at rest took 4.52 W: these samples were taken while the engine generated.
    assert baseline["power_w"]["median"] == 38.0
    host.hold_streams(30000, "mistral", 1)
    assert [look(host), look(host)] == [[], []]
    host.root(f"curl -fsS -d '{{\"decode_rate\": 20}}' {KNOB}")
    gpu(*SLOW)
    assert [look(host), look(host)] == [[], ["gpu-slow"]]
    assert gpu_items(deployed_stack) == ["gpu-slow"]
    host.root(f"curl -fsS -d '{{\"decode_rate\": 200}}' {KNOB}")
    gpu()
    until(lambda: look(host) == [], "tokens of a whole look come at the accepted speed")
    assert gpu_items(deployed_stack) == []
    host.root(f"rm {ACCEPTED}")
