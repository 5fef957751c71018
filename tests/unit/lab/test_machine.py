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


class Underneath:
    """What a host's machine calls, in order; ``stuck`` are processes that do not die."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.stuck = False

    def destroy(self, *_: Any) -> None:
        self.calls.append("processes end")
        if self.stuck:
            raise LabError(STUCK)

    def noting(self, call: str, answer: Any = None) -> Any:
        def noted(*_: Any) -> Any:
            self.calls.append(call)
            return answer

        return noted


@pytest.fixture
def underneath(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Underneath:
    under = Underneath()

    async def guest(_: Machine) -> asyncio.subprocess.Process:
        under.calls.append("boot")
        return await asyncio.create_subprocess_exec("sleep", "600")

    async def nothing(_: Machine) -> None:
        pass

    monkeypatch.setattr(cgroup, "destroy", under.destroy)
    monkeypatch.setattr(cgroup, "make", lambda *_: tmp_path / "group")
    monkeypatch.setattr(disk, "mount", under.noting("mount", answer=True))
    monkeypatch.setattr(disk, "unmount", under.noting("unmount"))
    for name in ("connect", "disconnect", "plug"):
        monkeypatch.setattr(network, name, lambda *_: None)
    monkeypatch.setattr(Machine, "_spawn", guest)
    monkeypatch.setattr(Machine, "_listen", nothing)
    return under


def test_a_host_whose_processes_do_not_die_is_no_host_that_is_on(
    underneath: Underneath, tmp_path: Path
) -> None:
    every = hosts(1)

    async def pressed() -> None:
        machine = Machine(Lab("one", tmp_path, tmp_path), every[0], tmp_path, every, "v2")
        await machine.power_on()
        await asyncio.sleep(0)
        underneath.stuck = True
        with pytest.raises(LabError) as refused:
            await machine.power_cut()
        assert refused.value.message == STUCK
        assert machine.power == "off"
        underneath.stuck = False
        await machine.power_on()
        await asyncio.sleep(0)
        await machine.power_cut()

    asyncio.run(pressed())
    assert underneath.calls == [
        "mount",
        "boot",
        "processes end",
        # What the first power cut could not clear is cleared before the disk is mounted again.
        *("processes end", "processes end", "unmount"),
        "mount",
        "boot",
        *("processes end", "processes end", "unmount"),
    ]
