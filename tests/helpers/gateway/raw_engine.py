"""An engine of which a test holds every byte."""

import socket
from dataclasses import dataclass, field

#: Only bounds a hang, seconds: a busy machine needs many times what an idle one does.
LIMIT_S = 180.0


def reply(body: bytes, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """A whole answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass(frozen=True)
class RawRequest:
    """A request as it came over the wire."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes = field(repr=False)

    def get(self, name: str) -> list[str]:
        """All values of one header."""
        return [value for key, value in self.headers if key.lower() == name]


class Wire:
    """One accepted connection of the engine."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.settimeout(LIMIT_S)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        """Send all of the data."""
        self.socket.sendall(data)

    def until(self, end: bytes) -> bytes:
        """Read up to and with `end`."""
        while end not in self._buffer:
            more = self.socket.recv(65536)
            assert more, f"closed after {self._buffer!r}"
            self._buffer += more
        data, _, self._buffer = self._buffer.partition(end)
        return data + end

    def next_request(self) -> RawRequest:
        """Read the next request with its body; a chunked body is put together."""
        head = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")[:-2]
        pairs = [line.partition(": ")[::2] for line in head[1:]]
        request = RawRequest(head[0], pairs, b"")
        if length := request.get("content-length"):
            return RawRequest(head[0], pairs, self._take(int(length[0])))
        body = b""
        while request.get("transfer-encoding") and (chunk := self.chunk()):
            body += chunk
        return RawRequest(head[0], pairs, body)

    def chunk(self) -> bytes:
        """Read the next chunk of a chunked body; empty at its end."""
        size = int(self.until(b"\r\n"), 16)
        return self._take(size + 2)[:size]

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += self.socket.recv(65536)
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def wait_until_closed(self) -> bool:
        """Wait until the other side has closed."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
