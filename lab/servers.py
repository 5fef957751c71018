"""The lab's servers (package index, git, registry, hub) as the supervisor runs them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

from lab.core.errors import LabError
from lab.core.service import Service
from lab.core.state import CONTROL_ADDRESS, Lab

#: Longest wait for a server to answer, in seconds.
READY_LIMIT = 60.0
STOP_LIMIT = 5.0
#: Pause before a server that ended is started again, in seconds.
RESTART_PAUSE = 1.0


class Server:
    """One server process, started again when it ends unexpectedly."""

    def __init__(self, lab: Lab, service: Service) -> None:
        self.service = service
        self.starts = 0
        self._lab = lab
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def start(self) -> None:
        """Start the server unless it runs."""
        if self._watch is None:
            self.starts = 0
            self._watch = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Ask the server to end, and kill it after 5 s."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
        if self._process is not None and self.running:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_LIMIT)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    async def ready(self) -> None:
        """Wait until the server answers; ``LabError`` with its last lines when it does not."""
        give_up = time.monotonic() + READY_LIMIT
        while not await self._answers():
            if self.starts > 3 or time.monotonic() > give_up:
                raise LabError(
                    f"{self.service.name} does not answer on port {self.service.port}:\n"
                    + "\n".join(self._log.read_text(errors="replace").splitlines()[-6:]),
                    f"Whole log: {self._log}",
                )
            await asyncio.sleep(0.1)

    @property
    def _log(self) -> Path:
        return self._lab.log / self.service.log

    async def _run(self) -> None:
        while True:
            self.starts += 1
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self.service.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ,
                )
            await self._process.wait()
            await asyncio.sleep(RESTART_PAUSE)

    async def _answers(self) -> bool:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(2):
                reader, writer = await asyncio.open_connection(CONTROL_ADDRESS, self.service.port)
                try:
                    if self.service.ready_path is None:
                        return True
                    request = (
                        f"GET {self.service.ready_path} HTTP/1.0\r\n"
                        f"Host: {CONTROL_ADDRESS}:{self.service.port}\r\n\r\n"
                    )
                    writer.write(request.encode())
                    return b" 200 " in await reader.readline()
                finally:
                    writer.close()
        return False
