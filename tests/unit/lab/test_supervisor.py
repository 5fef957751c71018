"""The lab's supervisor with `lockstep lab cut` and `mend`, before made-up hosts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lab.core.state import open_lab
from lab.supervisor import Supervisor


class RecordingMachine:
    """A host and its cable, which write down what is asked of them."""

    def __init__(self, power: str) -> None:
        self.power = power
        self.cut = False
        self.calls: list[str] = []

    async def apply(self) -> None:
        self.calls.append("cut" if self.cut else "whole")

    async def ready(self) -> None:
        self.calls.append("ready")


@pytest.mark.parametrize(
    ("power", "orders", "calls"),
    [
        ("on", ["cut", "mend"], ["cut", "whole", "ready"]),
        # Nothing to wait for: it was whole.
        ("on", ["mend"], ["whole"]),
        ("off", ["cut", "mend"], []),
    ],
)
def test_a_mended_host_is_waited_for_until_one_can_log_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, power: str, orders: list[str], calls: list[str]
) -> None:
    monkeypatch.setenv("LOCKSTEP_LAB_STATE", str(tmp_path))
    supervisor = Supervisor(open_lab("unit"), 1, tmp_path, "v2", services=False)
    [host] = supervisor._hosts
    machine = RecordingMachine(power)
    monkeypatch.setitem(supervisor._machines, host, machine)
    monkeypatch.setitem(supervisor._links, host, machine)
    for order in orders:
        asyncio.run(supervisor._cut({"host": host.name, "cut": order == "cut"}))
    assert machine.calls == calls
