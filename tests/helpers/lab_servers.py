"""Servers in threads, requests to them, and waits, for one test."""

import contextlib
import json
import secrets
import socket
import socketserver
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.onhost.core import clock

#: Only bounds a hang, seconds: a busy machine needs many times what an idle one does.
LIMIT_S = 400.0
#: Below the ports that the kernel gives to connections (ip_local_port_range, from 32768).
_PORTS = range(20_000, 32_000)
CONTENT = Path(__file__).parents[2] / "lab" / "content"


@contextlib.contextmanager
def running(server: socketserver.BaseServer) -> Iterator[str]:
    """Serve until the block ends; gives the address as ``host:port``."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    host, port = server.server_address[:2]  # type: ignore[misc]
    try:
        yield f"{host}:{port}"
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True)
class Answer:
    """Status, headers and body of an answer, also of an error."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str,
    body: object = None,
    method: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request; a body that is not ``None`` is sent as JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers, error.read())


def until(condition: Callable[[], Any], description: str, seconds: float = LIMIT_S) -> Any:
    """Wait for a condition; returns its value once it is true."""
    deadline = clock.now() + seconds
    while clock.now() < deadline:
        with contextlib.suppress(OSError):
            if value := condition():
                return value
        clock.sleep(0.02)
    raise AssertionError(f"{description}: not within {seconds:.0f} s")


def free_port() -> int:
    """A free port of 127.0.0.1 that no outgoing connection takes before a server listens there."""
    while True:
        port = secrets.choice(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
