"""Runs a server of the lab in a thread, or a stand-in program as a process, for one test."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        with urllib.request.urlopen(request, timeout=20) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers, error.read())


def until(condition: Callable[[], Any], what: str, seconds: float = 20) -> Any:
    """Wait for a condition; its value once it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if value := condition():
                return value
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {seconds:.0f} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def program(code: str, words: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A stand-in program with ``lab/content`` on its path, killed when the block ends."""
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CONTENT)}
    with subprocess.Popen(
        # Looking through the site packages of the tests takes as long as all the rest.
        [sys.executable, "-S", "-c", code, *words],
        env=known | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
