"""The cable of one host, as the supervisor keeps it: plugged or cut, fast or slow."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time

from lab.core.errors import LabError
from lab.core.run import run
from lab.core.state import INTERFACE, Host, Lab
from lab.host import network

_CABLE_LIMIT = 10.0


class Link:
    """A host's cable. ``delay`` is the added round trip in milliseconds; ``apply`` lays it so."""

    def __init__(self, lab: Lab, host: Host) -> None:
        self.delay = 0.0
        self.cut = False
        self._lab = lab
        self._host = host
        self._cable: asyncio.subprocess.Process | None = None

    async def apply(self) -> None:
        """Lay the cable anew between the host's port and the bridge."""
        await self.remove()
        port = self._host.name
        if self.delay == 0:
            network.plug(self._lab, port, not self.cut)
            return
        network.plug(self._lab, port, False)
        tap = f"{port}-slow"
        inside = network.NAMESPACES / self._lab.host_namespace(self._host)
        cable = [sys.executable, "-m", "lab.host.cable"]
        run(["nsenter", f"--net={inside}", *cable, "--whole-frames", INTERFACE])
        self._cable = await asyncio.create_subprocess_exec(
            *cable, port, tap, str(self.delay), stdin=asyncio.subprocess.DEVNULL
        )
        await self._await_tap(tap)
        network.ip(self._lab.namespace, f"link set {tap} up")
        network.plug(self._lab, tap, not self.cut)

    async def remove(self) -> None:
        """Take the slow cable away; the port is on no bridge until ``apply``."""
        cable, self._cable = self._cable, None
        if cable is not None:
            with contextlib.suppress(ProcessLookupError):
                cable.kill()
            await cable.wait()

    async def _await_tap(self, tap: str) -> None:
        assert self._cable is not None
        give_up = time.monotonic() + _CABLE_LIMIT
        while tap not in run(["ip", "-netns", self._lab.namespace, "-brief", "link"]):
            if self._cable.returncode is not None or time.monotonic() > give_up:
                raise LabError(
                    f"the slow cable of {self._host.name} did not start",
                    f"See {self._lab.log / 'supervisor.log'}; it needs /dev/net/tun.",
                )
            await asyncio.sleep(0.02)
