"""A threaded web server that sends files with ranges, logs bytes and can be made to fail."""

from __future__ import annotations

import json
import mimetypes
import re
import socketserver
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lab.http.access_log import AccessLog
from lab.http.faults import Fault, Faults, parse_faults

FAULTS_PATH = "/-/faults"
CHUNK = 256 * 1024


class Server(ThreadingHTTPServer):
    """Listens on one address; ``server_close`` frees it."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: type[Handler], access_log: AccessLog
    ) -> None:
        self.access_log = access_log
        self.faults = Faults()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without asking a name server for the name of the address."""
        socketserver.TCPServer.server_bind(self)


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD through ``respond``; subclasses decide what a path means."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024
    server: Server

    def respond(self, path: str, query: str) -> None:
        """Answer one GET or HEAD by exactly one call of a ``send_…`` method below."""
        raise NotImplementedError

    def planted_headers(self, status: int) -> dict[str, str]:
        """Headers that an error planted by a test carries."""
        return {}

    def do_GET(self) -> None:
        self.handle_read()

    def do_HEAD(self) -> None:
        self.handle_read()

    def handle_read(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self.fault: Fault | None = None
        if path == FAULTS_PATH:
            self.send_json(self.server.faults.describe())
            return
        self.fault = self.server.faults.take(path)
        if self.fault:
            time.sleep(self.fault.delay)
            if self.fault.status:
                headers = self.planted_headers(self.fault.status)
                self.send_error_text(self.fault.status, "a fault planted by a test", headers)
                return
        self.respond(path, parts.query)

    def do_POST(self) -> None:
        """Replace the planted faults by the JSON list in the body."""
        self.fault = None
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if urlsplit(self.path).path != FAULTS_PATH:
            self.send_error_text(404, f"only {FAULTS_PATH} can be posted to")
            return
        try:
            self.server.faults.replace(parse_faults(body))
        except (ValueError, TypeError) as error:
            self.send_error_text(400, str(error))
            return
        self.send_json(self.server.faults.describe())

    def send_json(self, value: object, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_body(200, body, "application/json", headers or {})

    def send_error_text(
        self, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        body = json.dumps({"error": text}).encode()
        self.send_body(status, body, "application/json", headers or {})

    def send_body(self, status: int, body: bytes, kind: str, headers: Mapping[str, str]) -> None:
        self.send_head(status, len(body), {"Content-Type": kind, **headers})
        self.send_chunks(status, iter((body,)))

    def send_redirect(self, location: str) -> None:
        self.send_body(307, b"", "text/plain", {"Location": location})

    def send_file(self, path: Path, headers: Mapping[str, str] | None = None) -> None:
        """Send a file, or the one range of it that the request asks for."""
        total = path.stat().st_size
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        common = {"Content-Type": kind, "Accept-Ranges": "bytes", **(headers or {})}
        requested_range = byte_range(self.headers.get("Range"), total)
        if requested_range is None:
            self.send_head(200, total, common)
            self.send_chunks(200, file_chunks(path, 0, total))
        elif requested_range[0] >= requested_range[1]:
            self.send_body(416, b"", kind, {"Content-Range": f"bytes */{total}"})
        else:
            start, end = requested_range
            common["Content-Range"] = f"bytes {start}-{end - 1}/{total}"
            self.send_head(206, end - start, common)
            self.send_chunks(206, file_chunks(path, start, end))

    def send_head(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status, HTTPStatus(status).phrase)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send_chunks(self, status: int, chunks: Iterator[bytes]) -> None:
        body_bytes = 0
        try:
            if self.command != "HEAD":
                for chunk in damage_chunks(chunks, self.fault):
                    self.wfile.write(chunk)
                    self.wfile.flush()
                    body_bytes += len(chunk)
            self.wfile.flush()
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        if self.fault and self.fault.drop_after is not None:
            self.close_connection = True
        client = str(self.client_address[0])
        self.server.access_log.add(client, self.command or "", self.path, status, body_bytes)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on standard error: the access log has it."""


def byte_range(header: str | None, total: int) -> tuple[int, int] | None:
    """First byte and the byte after the last one of a ``Range`` header.

    ``None`` when the whole of the ``total`` bytes is asked for; several ranges in one header
    count as that. An empty pair (start not below end) cannot be satisfied.
    """
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if not match or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        return max(0, total - int(last)), total
    return int(first), min(total, int(last) + 1) if last else total


def file_chunks(path: Path, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a file from ``start`` up to, not including, ``end``."""
    with path.open("rb") as file:
        file.seek(start)
        remaining_bytes = end - start
        while remaining_bytes > 0 and (chunk := file.read(min(CHUNK, remaining_bytes))):
            remaining_bytes -= len(chunk)
            yield chunk


def damage_chunks(chunks: Iterator[bytes], fault: Fault | None) -> Iterator[bytes]:
    """The same chunks as a planted fault lets them through."""
    if fault is None:
        yield from chunks
        return
    remaining_bytes = fault.drop_after
    corrupt = fault.corrupt
    for original in chunks:
        chunk = bytes((original[0] ^ 0xFF,)) + original[1:] if corrupt and original else original
        corrupt = False
        for piece in _pieces(chunk, fault.rate):
            kept_piece = piece if remaining_bytes is None else piece[:remaining_bytes]
            yield kept_piece
            if remaining_bytes is not None:
                remaining_bytes -= len(kept_piece)
                if remaining_bytes <= 0:
                    return
            if fault.rate:
                time.sleep(len(kept_piece) / fault.rate)


def _pieces(chunk: bytes, rate: float | None) -> Iterator[bytes]:
    step = len(chunk) if not rate else max(1, int(rate / 20))
    for start in range(0, len(chunk), max(1, step)):
        yield chunk[start : start + step]
