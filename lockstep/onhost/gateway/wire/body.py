"""The body of a request, read in one place, so that a client's going away is always noticed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from lockstep.onhost.gateway.wire.answers import Receive, Refused

#: Seconds that a client may keep its body waited for, and what it must send to have longer.
PATIENCE_S = 30.0
SLOWEST_BYTES_S = 8 * 1024  # A tenth of what a bad phone link brings.


class Gone(Exception):
    """The client closed its connection."""


class Body:
    """What the client sends. `take` is told how many bytes are about to be held, and may refuse."""

    def __init__(self, receive: Receive, take: Callable[[int], None] = lambda size: None) -> None:
        self._receive = receive
        self._take = take
        self._read = asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes.

        Raises:
            Refused: it does not come on: an unfinished body holds a place that others need.
            Gone: the client left in the middle of it.
        """
        more, size, waited = True, 0, 0.0
        while more:
            began = time.monotonic()
            try:
                async with asyncio.timeout(PATIENCE_S + size / SLOWEST_BYTES_S - waited):
                    message = await self._receive()
            except TimeoutError as error:
                said = f"the rest of the body did not come; {size} bytes of it have"
                raise Refused(408, said, "slow", close=True) from error
            # Only the client's time counts, not that of who takes the body on.
            waited += time.monotonic() - began
            if message["type"] == "http.disconnect":
                raise Gone
            more = message.get("more_body", False)
            if chunk := message.get("body", b""):
                size += len(chunk)
                yield chunk
        self._read.set()

    async def whole(self, most: int) -> bytes:
        """The body at once; a model's name can be anywhere in it.

        Raises:
            Refused: it has more than `most` bytes, does not come on, or there is no room for it.
            Gone: the client left in the middle of it.
        """
        found, size = [], 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > most:
                raise too_large(most)
            self._take(len(chunk))
            found.append(chunk)
        return b"".join(found)

    def nothing_expected(self) -> None:
        """A request without a body was read when its headers were."""
        self._read.set()

    async def until_gone(self) -> None:
        """Wait, once the body was read, until the client closes its connection."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def while_here(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, and end it when the client closes its connection. Errors are the work's."""
        working = asyncio.create_task(work)
        watching = asyncio.create_task(self.until_gone())
        try:
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Whichever is left; for the work this closes the connection to the engine.
            working.cancel()
            watching.cancel()
            await asyncio.wait((working, watching))
        with contextlib.suppress(Gone, asyncio.CancelledError):
            working.result()


def too_large(most: int) -> Refused:
    """The refusal of a body; what is left of it is not read."""
    said = (
        f"the body is larger than {most / 2**20:g} MiB. The key gateway.limits.body_mib bounds it"
    )
    return Refused(413, said, "body", close=True)
