"""Give the content of this Spark to its peers in a deploy: read-only, by hash, for a while.

usage: peer-server --address A --port N --hub FOLDER --folder RUN [--flat FOLDER]... [--idle S]

Started by `sharing open` as a transient unit. Ends on its own when every deploy has said that it is
over, or when no request came for --idle seconds and this host fetches nothing itself.

    HEAD, GET /content/HASH    200 or 206 (Range: bytes=N-), 404, or 202 if this host is
                               fetching it (X-Lockstep-State: fetching) or about to (expected)
    POST /end                  the deploy with this token is over

Every request needs `Authorization: Bearer TOKEN` of a present deploy.
"""

from __future__ import annotations

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from lockstep.onhost.core import errors, http_listener, program_command_lines
from lockstep.onhost.core.address_text import address_with_port
from lockstep.onhost.fetch import blob_files, content_for_peers

#: A client that takes no byte for so long is gone.
_SILENCE_S = 60.0


class CopyServer(http_listener.HttpListener):
    """A server of one store, which ends after `idle_s` seconds without a request."""

    def __init__(
        self, address: tuple[str, int], store: content_for_peers.PeerStore, idle_s: float
    ) -> None:
        super().__init__(address, CopyRequestHandler)
        self.store = store
        self.last_asked = time.monotonic()
        self.over: set[str] = set()
        self._idle_s = idle_s

    def end_if_unneeded(self) -> None:
        """End if all deploys that this server knows of are over."""
        if all(offer.accepts in self.over for offer in self.store.deploy_offers()):
            threading.Thread(target=self.shutdown, daemon=True).start()

    def service_actions(self) -> None:
        """End if nobody needs this server any more; called between requests."""
        if time.monotonic() - self.last_asked < self._idle_s:
            return
        if self.store.has_running_fetch():
            self.last_asked = time.monotonic()
            return
        threading.Thread(target=self.shutdown, daemon=True).start()


class CopyRequestHandler(BaseHTTPRequestHandler):
    """A handler of the requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = _SILENCE_S
    server: CopyServer

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a journal of every request of every copy helps nobody."""

    def do_POST(self) -> None:
        """Accept the end of a deploy."""
        token_hash = self._accepted_token_hash()
        if token_hash is None or self.path != "/end":
            http_listener.send_without_body(self, 401 if token_hash is None else 404)
            return
        # Recorded before the answer, so that the client may rely on it.
        self.server.over.add(token_hash)
        http_listener.send_without_body(self, 200)
        self.server.end_if_unneeded()

    def _accepted_token_hash(self) -> str | None:
        self.server.last_asked = time.monotonic()
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        token_hash = self.server.store.hash_of_accepted_token(token) if scheme == "Bearer" else None
        return None if token_hash in self.server.over else token_hash

    def do_GET(self) -> None:
        """Send the content, or for HEAD its length if it is here."""
        if self._accepted_token_hash() is None:
            http_listener.send_without_body(self, 401)
            return
        place, _, name = self.path.lstrip("/").partition("/")
        if place != "content" or not blob_files.NAME.fullmatch(name):
            http_listener.send_without_body(self, 404)
            return
        store = self.server.store
        path = store.path(name)
        if path is None and (coming := store.coming_content(name)):
            headers = {"X-Lockstep-State": coming.state, "X-Lockstep-Progress": coming.progress}
            http_listener.send_without_body(self, 202, headers)
            return
        # A fetch that ended between the two questions has left it here.
        path = path or store.path(name)
        if path is None:
            http_listener.send_without_body(self, 404)
            return
        try:
            http_listener.send_file(self, path)
        except FileNotFoundError:
            http_listener.send_without_body(self, 404)

    do_HEAD = do_GET


def main(argv: list[str]) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--hub", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--flat", type=Path, action="append", default=[])
    parser.add_argument("--idle", type=float, default=1800.0, metavar="SECONDS")
    options = parser.parse_args(argv)
    store = content_for_peers.PeerStore(options.hub, tuple(options.flat), options.folder)
    try:
        server = CopyServer((options.address, options.port), store, options.idle)
    except OSError as error:
        where = address_with_port(options.address, options.port)
        raise errors.Problem(f"cannot listen at {where}: {error.strerror}") from error
    with contextlib.closing(server.socket):
        server.serve_forever()
    return errors.EXIT_DONE
