"""A real HTTP server in a thread, for tests of HTTP clients."""

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SeenRequest:
    """A request as it arrived; `path` includes the query, or a whole URL at a proxy."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class Reply:
    """An answer."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(value: Any, status: int = 200, **headers: str) -> Reply:
    """A JSON answer; header names with '_' for '-'."""
    header_fields = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(json.dumps(value).encode(), status, header_fields)


Answers = Mapping[str, "Reply | Callable[[SeenRequest], Reply]"]


class LocalServer:
    """Answers by path without query, with 404 for other paths. Keeps the requests."""

    def __init__(self, answers: Answers) -> None:
        self.answers = dict(answers)
        self.requests: list[SeenRequest] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["Content-Length"])))

            def do_GET(self) -> None:
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                request = SeenRequest(self.command, self.path, dict(self.headers), body)
                outer.requests.append(request)
                reply = outer.answers.get(self.path.partition("?")[0], Reply(b"nothing", 404))
                reply = reply(request) if callable(reply) else reply
                self.send_response(reply.status)
                for name, text in reply.headers.items():
                    self.send_header(name, text)
                if "Content-Length" in reply.headers:
                    # The test's own Content-Length makes a transfer that breaks off.
                    self.close_connection = True
                else:
                    self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                if self.command != "HEAD":
                    # In some tests the client is gone before the answer.
                    with contextlib.suppress(ConnectionError):
                        self.wfile.write(reply.body)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.host}"

    @property
    def paths(self) -> list[str]:
        """The paths of the requests, in order."""
        return [request.path for request in self.requests]


@contextlib.contextmanager
def serving(answers: Answers) -> Iterator[LocalServer]:
    """The server, running."""
    server = LocalServer(answers)
    thread = threading.Thread(target=server._server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server._server.shutdown()
        server._server.server_close()
        thread.join()


def refused_address() -> str:
    """An address on which nothing listens."""
    server = LocalServer({})
    server._server.server_close()
    return server.host
