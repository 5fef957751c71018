"""The port at which a member's agent listens to the other members: small, bounded, by TLS."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler
from typing import Any

from lockstep.onhost.access import peer_tls
from lockstep.onhost.cluster.member_client import Answer
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
    """A server at one address for the clusters with that fabric; `tls` is its own side."""

    def __init__(
        self,
        clusters: Iterable[topology.Cluster],
        tls: ssl.SSLContext,
        act: Act,
        longest_s: float = LONGEST_S,
    ) -> None:
        self.clusters = {cluster.name: cluster for cluster in clusters}
        own_cluster = next(iter(self.clusters.values()))
        address = own_cluster.own_member.address, own_cluster.port
        super().__init__(address, ClusterRequestHandler)
        self.act = act
        self._tls = tls
        self._longest_s = longest_s
        self._open: dict[socket.socket, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._addresses = {
            _normal_address(member.address)
            for cluster in self.clusters.values()
            for member in cluster.members
        }

    def server_bind(self) -> None:
        """Listen even if the address is missing, because the link may come later, and go."""
        six = self.address_family == socket.AF_INET6
        level = socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP
        self.socket.setsockopt(level, _IPV6_FREEBIND if six else _IP_FREEBIND, 1)
        super().server_bind()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; the handshake is its handler's, for a client may be slow."""
        connection, address = super().get_request()
        tls_connection = self._tls.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )
        return tls_connection, address

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
                # Not that of TLS, whose connection is the handler's.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def lift_time_limit(self, connection: socket.socket) -> None:
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
    connection: ssl.SSLSocket

    def setup(self) -> None:
        """Let the client prove itself; raise OSError if it cannot."""
        super().setup()
        self.connection.do_handshake()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: two lines a second help nobody."""

    def do_POST(self) -> None:
        """Answer one verb."""
        name, _, verb = self.path.lstrip("/").partition("/")
        length = self.headers.get("Content-Length", "")
        cluster = self.server.clusters.get(name)
        if cluster is None or not length.isdigit():
            http_listener.send_without_body(self, 404)
            return
        if not self._is_of_member(cluster):
            http_listener.send_without_body(self, 403)
            return
        if int(length) > MOST_BYTES:
            http_listener.send_without_body(self, 413)
            return
        body = self.rfile.read(int(length))
        self.server.lift_time_limit(self.connection)
        status, answer = self._act(cluster, verb, body)
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _is_of_member(self, cluster: topology.Cluster) -> bool:
        """Tell whether the client is the agent of the member at its address."""
        names = peer_tls.names_of(self.connection)
        return any(
            peer_tls.certificate_name(peer_tls.AGENT, member.name) in names
            for member in cluster.members
            if _normal_address(member.address) == self.client_address[0]
        )

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


def _normal_address(address: str) -> str:
    """Return an address in the form in which the system writes it."""
    return str(ipaddress.ip_address(address))
