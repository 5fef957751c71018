"""Reading of request bodies, in one place so that a client's departure is always noticed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal, Receive

#: Seconds that a client may delay its body, and the rate that earns it more time.
PATIENCE_S = 30.0
SLOWEST_BYTES_S = 8 * 1024  # A tenth of what a bad phone link brings.


class ClientGone(Exception):
    """The client closed its connection."""


class Body:
    """The body of a request. `take` is told how many bytes will be held, and may refuse."""

    def __init__(self, receive: Receive, take: Callable[[int], None] = lambda size: None) -> None:
        self._receive = receive
        self._take = take
        self._read = asyncio.Event()

    async def read_chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            GatewayRefusal: It stalls. An unfinished body holds a slot that others need.
            ClientGone: The client left in the middle of it.
        """
        more, size, waited_s = True, 0, 0.0
        while more:
            began = time.monotonic()
            try:
                async with asyncio.timeout(PATIENCE_S + size / SLOWEST_BYTES_S - waited_s):
                    message = await self._receive()
            except TimeoutError as error:
                error_message = f"the rest of the body did not come; {size} bytes of it have"
                raise GatewayRefusal(408, error_message, "slow", close=True) from error
            # Only the client's time counts, not that of the consumer.
            waited_s += time.monotonic() - began
            if message["type"] == "http.disconnect":
                raise ClientGone
            more = message.get("more_body", False)
            if chunk := message.get("body", b""):
                size += len(chunk)
                yield chunk
        self._read.set()

    async def read_whole(self, most: int) -> bytes:
        """Return the whole body, because a model's name can be anywhere in it.

        Raises:
            GatewayRefusal: It has more than `most` bytes, stalls, or there is no memory for it.
            ClientGone: The client left in the middle of it.
        """
        pieces, size = [], 0
        async for chunk in self.read_chunks():
            size += len(chunk)
            if size > most:
                raise too_large_refusal(most)
            self._take(len(chunk))
            pieces.append(chunk)
        return b"".join(pieces)

    def mark_as_read(self) -> None:
        """Mark the body as read, for requests that have none."""
        self._read.set()

    async def wait_until_client_gone(self) -> None:
        """Wait, after the body was read, until the client closes its connection."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def run_while_client_stays(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work until it ends or the client closes its connection; raise the work's errors."""
        working = asyncio.create_task(work)
        watching = asyncio.create_task(self.wait_until_client_gone())
        try:
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Cancelling the work closes the connection to the engine.
            working.cancel()
            watching.cancel()
            await asyncio.wait((working, watching))
        with contextlib.suppress(ClientGone, asyncio.CancelledError):
            working.result()


def too_large_refusal(most: int) -> GatewayRefusal:
    """Return the refusal of a body that is too large; the rest of it is not read."""
    message = (
        f"the body is larger than {most / 2**20:g} MiB. The key gateway.limits.body_mib bounds it"
    )
    return GatewayRefusal(413, message, "body", close=True)
