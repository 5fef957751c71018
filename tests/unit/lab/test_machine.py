"""A host's power button when the machine underneath is slow or refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lab.core.errors import LabError
from lab.core.state import Lab, hosts
from lab.host import cgroup, disk, network
from lab.host.machine import Machine

STUCK = "processes [7] do not die within 120 s"


async def guest(_: Machine) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("sleep", "600")


async def listen_nowhere(_: Machine) -> None:
    pass


def test_a_host_whose_processes_do_not_die_is_no_host_that_is_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    every, is_stuck = hosts(1), [False]
    calls: list[str] = []

    def destroy(*_: Any) -> None:
        calls.append("processes end")
        if is_stuck[0]:
            raise LabError(STUCK)

    def mount(*_: Any) -> bool:
        calls.append("mount")
        return True

    monkeypatch.setattr(cgroup, "destroy", destroy)
    monkeypatch.setattr(cgroup, "make", lambda *_: tmp_path / "group")
    monkeypatch.setattr(disk, "mount", mount)
    monkeypatch.setattr(disk, "unmount", lambda *_: calls.append("unmount"))
    for name in ("connect", "disconnect", "plug"):
        monkeypatch.setattr(network, name, lambda *_: None)
    monkeypatch.setattr(Machine, "_spawn", guest)
    monkeypatch.setattr(Machine, "_listen", listen_nowhere)

    async def press_power() -> None:
        machine = Machine(Lab("one", tmp_path, tmp_path), every[0], tmp_path, every, "v2")
        await machine.power_on()
        await asyncio.sleep(0)
        is_stuck[0] = True
        with pytest.raises(LabError) as error:
            await machine.power_cut()
        assert (error.value.message, machine.power) == (STUCK, "off")
        is_stuck[0] = False
        await machine.power_on()
        await asyncio.sleep(0)
        await machine.power_cut()

    asyncio.run(press_power())
    assert calls == [
        *("mount", "processes end"),
        # What the first power cut could not clear is cleared before the disk is mounted again.
        *("processes end", "processes end", "unmount", "mount"),
        *("processes end", "processes end", "unmount"),
    ]
