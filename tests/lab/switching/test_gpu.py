"""The GPU on hosts: a cap of its clock, heat, and a slow Spark; no finding without a cause."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stack import INVENTORY, Host, Stack, until

CAP = "/dev/nvidia-standin-cap"
UNIT = "lockstep-gpu-cap.service"
KNOB = "http://127.0.0.1:31000/standin/knob"
ACCEPTED = "/var/lib/lockstep-deploy/accepted.json"
BUSY = ("--watts", "38", "--clock", "2418", "--utilization", "96")
SLOW = ("--watts", "14", "--clock", "611", "--utilization", "96")


@pytest.fixture
def gpu(stack: Stack, first: object) -> Iterator[Callable[..., None]]:
    """Set what the first host's nvidia-smi shows, where the watch looks only when it is asked to.

    Afterwards as usual, and nothing is hot.
    """
    stack.one.root("systemctl stop lockstep-wedge.timer")
    yield lambda *options: print(stack.lab("gpu", "spark1", *options))
    stack.lab("gpu", "spark1")
    stack.one.root("systemctl start lockstep-wedge.service lockstep-wedge.timer")
    stack.one.switch("none")


@pytest.fixture
def capped(deployed: Stack) -> Iterator[Path]:
    """spark1 with a cap, and without one afterwards."""
    one = ("-y", "--limit", "spark1")
    inventory = deployed.inventory("capped", gpu={"max_clock_mhz": 2100})
    assert "Switch | Start what watches" in deployed.good_deploy(*one, inventory=inventory).changed
    yield inventory
    deployed.good_deploy(*one)
    left = f"ls {CAP} /etc/systemd/system/{UNIT} 2>/dev/null || true"
    assert deployed.one.root(left) == ""


def cap(host: Host) -> str:
    return host.root(f"cat {CAP} 2>/dev/null || true").strip()


def look(host: Host) -> list[str]:
    """What the watch finds now, as its timer asks it to look."""
    host.root("systemctl start lockstep-wedge.service")
    found = [each.partition(": ")[0] for each in host.status()["problems"]]
    assert [code for code in found if not code.startswith("gpu-")] == []
    return found


def named(stack: Stack, inventory: Path = INVENTORY) -> list[str]:
    """The item of each difference of spark1's GPU."""
    said = stack.diff("--json", "--limit", "spark1", inventory=inventory).stdout
    found: list[dict[str, Any]] = json.loads(said)["differences"]
    return [each["item"] for each in found if each["kind"] == "gpu"]


def test_a_hot_gpu_is_named_while_it_is_hot(deployed: Stack, gpu: Callable[..., None]) -> None:
    gpu(*BUSY, "--celsius", "93", "--slowed-by", "sw_thermal_slowdown")
    assert look(deployed.one) == ["gpu-hot"]
    assert named(deployed) == ["gpu-hot"]
    gpu()
    assert look(deployed.one) == []


def test_a_slow_spark_is_named_and_a_busy_one_is_not(
    deployed: Stack, gpu: Callable[..., None]
) -> None:
    one = deployed.one
    one.switch("none")
    assert one.switch("mistral").code == 0
    one.root("python3 /usr/local/lib/lockstep floor --accept")
    accepted = json.loads(one.root(f"cat {ACCEPTED}"))["mistral"]
    # A GPU at rest took 4.52 W: these samples were taken while the engine generated.
    assert accepted["power_w"]["median"] == 38.0
    one.hold_streams(30000, "mistral", 1)
    assert [look(one), look(one)] == [[], []]
    one.root(f"curl -fsS -d '{{\"decode_rate\": 20}}' {KNOB}")
    gpu(*SLOW)
    assert [look(one), look(one)] == [[], ["gpu-slow"]]
    assert named(deployed) == ["gpu-slow"]
    one.root(f"curl -fsS -d '{{\"decode_rate\": 200}}' {KNOB}")
    gpu()
    until(lambda: look(one) == [], "tokens of a whole look come at the accepted speed")
    assert named(deployed) == []
    one.root(f"rm {ACCEPTED}")


def test_a_cap_is_set_kept_and_lifted(
    deployed: Stack, capped: Path, gpu: Callable[..., None]
) -> None:
    one = deployed.one
    assert cap(one) == "2100"
    gpu(*BUSY)
    assert look(one) == []
    # Somebody lifts it by hand: named, and set again by the watch.
    one.root("nvidia-smi -rgc")
    assert named(deployed, capped) == ["gpu-cap"]
    assert (look(one), cap(one)) == ([], "2100")
    one.logs("its cap of 2100 MHz is lost: set again", "-u lockstep-wedge")
    # A boot forgets it, and sets it again.
    deployed.lab("cycle", one.name)
    until(lambda: cap(one) == "2100", "the cap is back after a boot")
