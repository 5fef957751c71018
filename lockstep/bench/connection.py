"""One HTTP/1.1 connection of an event loop: opened beforehand, used for one request, closed.

A library would open the connection only when it sends, and its thread for each answer would wake at
each event of that answer (`client`). This module has the little of HTTP that a completion needs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import urlsplit


class Connection:
    """A connection that sends one POST and reads the answer as it arrives.

    Its methods raise `OSError` and `EOFError` if the connection breaks, and `ValueError` if the
    answer is not HTTP.

    Attributes:
        status: HTTP status of the answer, set by `wait_for_head`.
    """

    status = 0

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str):
        self._reader, self._writer, self._host = reader, writer, host
        self._headers: Mapping[str, str] = {}

    @classmethod
    async def open(cls, url: str, limit_s: float) -> Connection:
        """Open a connection to the host of a URL.

        Raises:
            TimeoutError: opening takes longer than `limit_s` seconds.
        """
        to = urlsplit(url)
        tls = to.scheme == "https"
        port = to.port or (443 if tls else 80)
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection(to.hostname, port, ssl=tls or None)
        return cls(reader, writer, to.netloc.rpartition("@")[2])

    def send(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Send the whole request at once."""
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

    async def wait_for_head(self) -> None:
        """Read the status and the headers of the answer."""
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
        """Yield the body as it arrives."""
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self._reader.readline()).split(b";")[0] or b"0", 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
        elif "content-length" in self._headers:
            yield await self._reader.readexactly(int(self._headers["content-length"]))
        else:
            while piece := await self._reader.read(65536):
                yield piece

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the body line by line."""
        remainder = b""
        async for piece in self.pieces():
            *lines, remainder = (remainder + piece).split(b"\n")
            for line in lines:
                yield line
        yield remainder

    async def whole(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.pieces()])

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._writer.close()
