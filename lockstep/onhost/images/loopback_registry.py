"""A read-only registry on loopback, from which Docker pulls images of this host's own store.

Docker lists an image by digest only under the name that it was pulled by. So every image here has
the name of this registry, and units refer to the digest that Docker itself has checked.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from lockstep.onhost.core import errors, http_listener
from lockstep.onhost.images import image_blob_store

_TLS_HANDSHAKE = b"\x16"
_PATH = re.compile(r"/v2/.+/(?P<kind>manifests|blobs)/sha256:(?P<name>[0-9a-f]{64})")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60.0
    server: _StoreServer

    def handle(self) -> None:
        """Serve one connection.

        With containerd's image store Docker tries TLS first, also on loopback, and falls back to
        HTTP only if the answer is one of HTTP (Docker 26, tried 2026-11-21; a new installation of
        29 has that store).
        """
        if self.connection.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE:
            # With unread data the kernel would discard the answer.
            self.connection.recv(65536)
            self.wfile.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            return
        super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because Docker reports its own progress."""

    def do_GET(self) -> None:
        match = _PATH.fullmatch(self.path)
        if self.path.rstrip("/") == "/v2":
            http_listener.send_without_body(
                self, 200, {"Docker-Distribution-Api-Version": "registry/2.0"}
            )
        elif match is None or not (self.server.folder / match["name"]).exists():
            http_listener.send_without_body(self, 404)
        else:
            path = self.server.folder / match["name"]
            headers = {"Docker-Content-Digest": f"sha256:{match['name']}"}
            kind = "application/octet-stream"
            if match["kind"] == "manifests":
                kind = image_blob_store.parse_manifest(
                    image_blob_store.read_small_file(path)
                ).media_type
            http_listener.send_file(self, path, {**headers, "Content-Type": kind})

    do_HEAD = do_GET


class _StoreServer(http_listener.HttpListener):
    def __init__(self, address: tuple[str, int], folder: Path) -> None:
        self.folder = folder
        super().__init__(address, _Handler)


@contextlib.contextmanager
def serve_store(address: tuple[str, int], folder: Path) -> Iterator[None]:
    """Serve the store while the block runs; raise Problem if the port is taken."""
    try:
        face = _StoreServer(address, folder)
    except OSError as error:
        raise errors.Problem(
            f"cannot listen at {address[0]}:{address[1]} for Docker: {error.strerror}. Remedy: "
            "end what uses that port (ss -ltnp)"
        ) from error
    thread = threading.Thread(target=face.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        face.shutdown()
        thread.join()
        face.server_close()
