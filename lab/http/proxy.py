"""A forward proxy, as a site has one: plain HTTP requests and CONNECT tunnels, all counted."""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
from pathlib import Path
from urllib.parse import urlsplit

from lab.http.access_log import AccessLog, log_path
from lab.http.http_server import Handler, Server

CHUNK = 256 * 1024
TIMEOUT = 60.0
_HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}


class ProxyServer(Server):
    """Answers for any host that this network reaches."""

    def __init__(self, address: tuple[str, int], log: AccessLog) -> None:
        super().__init__(address, ProxyHandler, log)


class ProxyHandler(Handler):
    def handle_read(self) -> None:
        if self.path.startswith("/"):
            super().handle_read()
        else:
            self._forward()

    def respond(self, path: str, query: str) -> None:
        if path == "/health":
            self.send_json({"status": "ok"})
        else:
            self.send_error_text(400, "this is a proxy: ask it for a whole URL")

    def do_POST(self) -> None:
        if self.path.startswith("/"):
            super().do_POST()
        else:
            self._forward()

    do_PUT = do_PATCH = do_DELETE = do_POST

    def _forward(self) -> None:
        self.fault = None
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
        upstream = http.client.HTTPConnection(url.hostname or "", url.port or 80, timeout=TIMEOUT)
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        try:
            upstream.request(self.command or "GET", target, body or None, headers)
            answer = upstream.getresponse()
        except (OSError, http.client.HTTPException) as error:
            upstream.close()
            self.send_error_text(502, f"{url.netloc}: {error}")
            return
        with contextlib.closing(upstream):
            self._pass_on(answer)

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        """Send the answer's head and body as they come; the connection ends the body."""
        self.close_connection = True
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        body_bytes = 0
        with contextlib.suppress(OSError, http.client.HTTPException):
            while chunk := answer.read1(CHUNK):
                self.wfile.write(chunk)
                self.wfile.flush()
                body_bytes += len(chunk)
        self._log(answer.status, body_bytes)

    def do_CONNECT(self) -> None:
        self.close_connection = True
        host, _, port = self.path.rpartition(":")
        try:
            upstream = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT)
        except (OSError, ValueError) as error:
            self.fault = None
            self.send_error_text(502, f"{self.path}: {error}")
            return
        with upstream:
            self.send_response(200, "Connection established")
            self.end_headers()
            self.wfile.flush()
            self._log(200, relay(self.connection, upstream))

    def _log(self, status: int, body_bytes: int) -> None:
        client = str(self.client_address[0])
        self.server.access_log.add(client, self.command or "", self.path, status, body_bytes)


def relay(client: socket.socket, upstream: socket.socket) -> int:
    """Carry bytes both ways until one side ends or nothing moves; return upstream's bytes."""
    peers = {client: upstream, upstream: client}
    body_bytes = 0
    with contextlib.suppress(OSError):
        while ready := select.select([client, upstream], [], [], TIMEOUT)[0]:
            for source in ready:
                data = source.recv(CHUNK)
                if not data:
                    return body_bytes
                peers[source].sendall(data)
                body_bytes += len(data) if source is upstream else 0
    return body_bytes


def serve(state: Path, address: str, port: int) -> None:
    """Serve until the process is ended."""
    ProxyServer((address, port), AccessLog(log_path(state, "proxy"))).serve_forever()
