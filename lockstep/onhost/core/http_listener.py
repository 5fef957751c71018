"""An HTTP server on a host, and its answers: a file, or no body."""

from __future__ import annotations

import os
import re
import socket
import socketserver
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_RANGE = re.compile(r"bytes=(\d+)-")


class HttpListener(ThreadingHTTPServer):
    """An HTTP server that needs no name service, and is silent about clients that hang up."""

    daemon_threads = True
    # Room for eight hosts with a few copies each at once.
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Listen without HTTPServer's lookup of the host's name, which may wait for an answer."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: a client that hangs up is nothing to report."""


def send_file(
    handler: BaseHTTPRequestHandler, path: Path, headers: dict[str, str] | None = None
) -> None:
    """Answer GET or HEAD with a file, from the byte that `Range: bytes=N-` names."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        match = _RANGE.fullmatch(handler.headers.get("Range", ""))
        start = int(match[1]) if match else 0
        if match and start >= size:
            send_without_body(handler, 416, {"Content-Range": f"bytes */{size}"})
            return
        part = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if match else {}
        _send_head(handler, 206 if match else 200, size - start, {**(headers or {}), **part})
        if handler.command != "HEAD" and start < size:
            handler.connection.sendfile(file, start, size - start)
            # Copies are read once, and an engine needs the memory of their page cache.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def send_without_body(
    handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str] | None = None
) -> None:
    """Answer without a body."""
    _send_head(handler, status, 0, headers or {})


def _send_head(
    handler: BaseHTTPRequestHandler, status: int, size: int, headers: dict[str, str]
) -> None:
    handler.send_response(status)
    for name, value in {**headers, "Content-Length": str(size)}.items():
        handler.send_header(name, value)
    handler.end_headers()
