"""One HTTP/1.1 connection of an event loop, for one request: opened before, used once, closed.

A library would open it when it sends, and a thread for each answer is woken by each of its events
(`client`). So this is the little of HTTP that a completion needs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import urlsplit


class Connection:
    """Sends one POST, and gives its answer as it comes.

    Raises `OSError` and `EOFError` where the connection breaks, `ValueError` for what is no HTTP.

    Attributes:
        status: Of the answer, once `answered`.
    """

    status = 0

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str):
        self._reader, self._writer, self._host = reader, writer, host
        self._headers: Mapping[str, str] = {}

    @classmethod
    async def open(cls, url: str, limit_s: float) -> Connection:
        """To the host of a URL; `TimeoutError` where that takes longer than `limit_s`."""
        to = urlsplit(url)
        tls = to.scheme == "https"
        port = to.port or (443 if tls else 80)
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection(to.hostname, port, ssl=tls or None)
        return cls(reader, writer, to.netloc.rpartition("@")[2])

    def send(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """The whole request, at once."""
        head = {
            "Host": self._host,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Accept-Encoding": "identity",
            "Connection": "close",
            **headers,
        }
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def answered(self) -> None:
        """Wait for the head of the answer."""
        line = await self._reader.readline()
        if not line.startswith(b"HTTP/1."):
            raise ConnectionError(f"no answer of HTTP: {line[:80]!r}" if line else "no answer")
        self.status = int(line.split()[1])
        head = b""
        while (line := await self._reader.readline()).strip():
            head += line
        fields = BytesParser(policy=HTTP).parsebytes(head).items()
        self._headers = {key.lower(): value for key, value in fields}

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it arrives."""
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self._reader.readline()).split(b";")[0] or b"0", 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
        elif "content-length" in self._headers:
            yield await self._reader.readexactly(int(self._headers["content-length"]))
        else:
            while piece := await self._reader.read(65536):
                yield piece

    async def lines(self) -> AsyncIterator[bytes]:
        """The body, line by line."""
        kept = b""
        async for piece in self.pieces():
            *lines, kept = (kept + piece).split(b"\n")
            for line in lines:
                yield line
        yield kept

    async def whole(self) -> bytes:
        """The body."""
        return b"".join([piece async for piece in self.pieces()])

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._writer.close()
