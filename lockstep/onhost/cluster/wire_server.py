"""The port at which a member's agent listens to the other members: small, bounded, sealed."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler
from typing import Any

from lockstep.onhost.cluster import sealed_messages, wire_client
from lockstep.onhost.cluster.wire_client import Answer
from lockstep.onhost.core import errors, http_listener, topology

#: A request is small and comes at once; a client that sends more, or slowly, is cut off.
MOST_BYTES = 64 * 1024
LONGEST_S = 15.0
AT_ONCE = 16
# linux/in.h and in6.h; Python 3.12 has no names for them.
_IP_FREEBIND = 15
_IPV6_FREEBIND = 78

#: (cluster, verb, body) → answer; may raise a Problem.
Act = Callable[[topology.Cluster, str, Answer], Answer]


class ClusterServer(http_listener.HttpListener):
    """A server at one address for the clusters with that fabric."""

    def __init__(
        self, callers: Iterable[wire_client.MemberClient], act: Act, longest_s: float = LONGEST_S
    ) -> None:
        self.callers = {caller.cluster.name: caller for caller in callers}
        clusters = [caller.cluster for caller in self.callers.values()]
        super().__init__((clusters[0].own_member.address, clusters[0].port), ClusterRequestHandler)
        self.act = act
        self.guard = sealed_messages.SealVerifier()
        self._longest_s = longest_s
        self._open: dict[socket.socket, tuple[str, float]] = {}
        self._lock = threading.Lock()
        # In the form in which the system writes them.
        self._addresses = {
            str(ipaddress.ip_address(member.address))
            for cluster in clusters
            for member in cluster.members
        }

    def server_bind(self) -> None:
        """Listen even if the address is missing, because the link may come later, and go."""
        six = self.address_family == socket.AF_INET6
        level = socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP
        self.socket.setsockopt(level, _IPV6_FREEBIND if six else _IP_FREEBIND, 1)
        super().server_bind()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Accept only members, and only a few connections of each at a time."""
        address = client_address[0]
        with self._lock:
            open_count = sum(
                1 for open_address, _ in self._open.values() if open_address == address
            )
            if address not in self._addresses or open_count >= AT_ONCE:
                return False
            self._open[request] = (address, time.monotonic())
            return True

    def service_actions(self) -> None:
        """Cut off slow clients; called twice a second."""
        now = time.monotonic()
        with self._lock:
            late = [
                open_request
                for open_request, (_, at) in self._open.items()
                if now - at > self._longest_s
            ]
        for connection in late:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def mark_complete(self, connection: socket.socket) -> None:
        """Note that the whole request is here, so that its work may take its time."""
        with self._lock:
            if connection in self._open:
                self._open[connection] = (self._open[connection][0], float("inf"))

    def shutdown_request(self, request: Any) -> None:
        """Forget and close a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)


class ClusterRequestHandler(BaseHTTPRequestHandler):
    """A handler of one connection with one request."""

    timeout = LONGEST_S
    server: ClusterServer

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: two lines a second help nobody."""

    def do_POST(self) -> None:
        """Answer one verb."""
        name, _, verb = self.path.lstrip("/").partition("/")
        length = self.headers.get("Content-Length", "")
        if name not in self.server.callers or not length.isdigit():
            http_listener.send_without_body(self, 404)
            return
        if int(length) > MOST_BYTES:
            http_listener.send_without_body(self, 413)
            return
        body = self.rfile.read(int(length))
        self.server.mark_complete(self.connection)
        cluster, key = self.server.callers[name].cluster, self.server.callers[name].key
        headers = dict(self.headers.items())
        try:
            self.server.guard.check(key, name, cluster.own_member.name, verb, headers, body)
        except sealed_messages.WrongSeal:
            http_listener.send_without_body(self, 401)
            return
        except (sealed_messages.StaleTicket, sealed_messages.RepeatedRequest) as why:
            status = wire_client.STALE if isinstance(why, sealed_messages.StaleTicket) else 403
            self._answer(key, status, {"problem": str(why), "code": errors.EXIT_FAILED})
            return
        self._answer(key, *self._act(cluster, verb, body))

    def _act(self, cluster: topology.Cluster, verb: str, body: bytes) -> tuple[int, Answer]:
        try:
            return 200, self.server.act(cluster, verb, json.loads(body))
        except errors.Problem as problem:
            return 409, {"problem": str(problem), "code": problem.code}
        except OSError as error:
            return 409, {"problem": f"{verb}: {error}", "code": errors.EXIT_FAILED}
        except (ValueError, LookupError, TypeError) as error:
            why = f"{verb}: not understood ({type(error).__name__}: {error})"
            return 400, {"problem": f"{why}: deploy to every member", "code": errors.EXIT_USAGE}

    def _answer(self, key: bytes, status: int, answer: Answer) -> None:
        body = json.dumps(answer).encode()
        nonce, ticket = self.headers.get(sealed_messages.NONCE, ""), self.server.guard.ticket()
        self.send_response(status)
        self.send_header(sealed_messages.TICKET, ticket)
        self.send_header(
            sealed_messages.SEAL, sealed_messages.answer_seal(key, nonce, status, ticket, body)
        )
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
