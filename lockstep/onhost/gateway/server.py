"""The gateway: every model of this Spark, and of its peers, under one address.

usage: gateway

Reads gateway.json, models.json and the keys of persons, and listens at every address that the
deploy named. Forwards each request to the model that it names if that is hot. Requires a key where
other machines can reach it. Reports the hot model and its own counters. docs/gateway.md has the
paths.

Needs the packages of the tools' environment. If systemd starts it, systemd has opened its ports and
keeps them open; otherwise it opens them itself.

exit codes: 0 stopped, 1 a port is not open or a key is missing, 2 wrong use
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Coroutine, Iterator, Sequence, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httptools
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lockstep.onhost.access import peer_tls
from lockstep.onhost.core import (
    address_text,
    config,
    errors,
    event_lines,
    layout,
    program_command_lines,
)
from lockstep.onhost.gateway import (
    app,
    configuration,
    outgoing_connections,
    peer_gateways,
    request_authentication,
    switch_queue,
    usage_totals,
)
from lockstep.onhost.gateway.configuration import ANYWHERE, ListenAddress
from lockstep.onhost.gateway.hot_model import HotModel
from lockstep.onhost.gateway.idle_stop import IdleStop
from lockstep.onhost.gateway.keys import Keys
from lockstep.onhost.gateway.page import Page
from lockstep.onhost.gateway.prometheus_history import History
from lockstep.onhost.gateway.request_counters import Counts
from lockstep.onhost.gateway.wire import gateway_answers
from lockstep.onhost.operator.live_state import Facts
from lockstep.onhost.systemd.outdated_units import GATEWAY_SOCKET

# Longer than clients keep an idle connection, so that the client is the one to close it.
_KEEP_ALIVE_S = 75
# A stop need not wait long: clients retry, and engines keep running.
_STOP_S = 2
#: Bytes of a request's line and headers together: an agent's are below 4 KiB.
LONGEST_HEAD = 64 * 1024
#: Seconds within which they must arrive.
HEAD_S = 30.0
_BACKLOG = 1024
_FIRST = 3  # The first descriptor that systemd hands over (sd_listen_fds(3)).
#: Seconds for the first request of a connection that was accepted before the stop.
_LAST_S = 0.5


class Listeners:
    """All listeners: the listener of each connection, and whether that is for its client."""

    def __init__(self, listeners: Sequence[ListenAddress], peer_names: Set[str]) -> None:
        self._listeners = {(listener.address, listener.port): listener for listener in listeners}
        self._peer_names = peer_names

    def is_client_allowed(self, listener: ListenAddress, transport: asyncio.BaseTransport) -> bool:
        """Tell whether a client may ask there: that of peers is for their gateways alone."""
        if listener.kind != "peers":
            return True
        connection = transport.get_extra_info("ssl_object")
        return not self._peer_names.isdisjoint(peer_tls.names_of(connection))

    def listener_of(self, transport: asyncio.BaseTransport) -> ListenAddress:
        """Return the listener of a connection: that of its own address, else the wildcard one."""
        name = transport.get_extra_info("sockname")
        if isinstance(name, str):
            return self._listeners[(name, 0)]
        address, port = name[0].removeprefix("::ffff:"), name[1]
        if (listener := self._listeners.get((address, port))) is not None:
            return listener
        return next(
            self._listeners[(wildcard, port)]
            for wildcard in ANYWHERE
            if (wildcard, port) in self._listeners
        )


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, with a limit for the head of a request, and the listener in its scope.

    Offers of another protocol are ignored (RFC 9110, 7.8). Java's HttpClient offers HTTP/2 with
    each first request, and httptools takes that for the end of HTTP: it gives no body. So such a
    head is parsed once more, without the offer.

    uvicorn reports a client's departure to the last request that it has read. If a client
    pipelines, that is not the request being answered, which would go on, with its engine, and fail
    when it writes to a closed transport. This class reports it to the request being answered.
    """

    listeners: Listeners

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._head = 0
        self._late: asyncio.TimerHandle | None = None
        self._answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        listener = self.listeners.listener_of(transport)
        if not self.listeners.is_client_allowed(listener, transport):
            transport.close()
        self.app_state = {"listener": listener}
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        if self._answering is not None:
            # From here on it receives a disconnect, and its output is discarded.
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Tell whether the connection stays open for answers after the client's last byte.

        A client that has closed looks the same until something is written to it, so a request that
        keeps an engine busy ends with its client's half. Short answers are sent at once.
        """
        # TLS has no half of a connection, and a peer's client stays for its answer.
        if self.transport.get_extra_info("ssl_object"):
            return False
        cycles = [cycle for cycle in (self._answering, self.cycle) if cycle is not None]
        if not cycles or any(cycle.scope["method"] not in ("GET", "HEAD") for cycle in cycles):
            return False
        self.cycle.keep_alive = False
        return not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        if self._head >= 0:
            self._head += len(data)
        self._unset_keepalive_if_required()
        remaining_data: bytes | memoryview = data
        try:
            while remaining_data:
                remaining_data = self._feed_parser(remaining_data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._head > LONGEST_HEAD and not self.transport.is_closing():
            self._refuse_long_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._late is None:
            self._start_head_timer()

    def _feed_parser(self, data: bytes | memoryview) -> bytes | memoryview:
        """Parse up to the end, or to the end of a head with an offer; return the rest."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._offers_upgrade():
                head, self.parser = self._head_without_offer(), httptools.HttpRequestParser(self)
                self.parser.feed_data(head)
                return memoryview(data)[offer.args[0] :]
        return b""

    def _offers_upgrade(self) -> bool:
        """Tell whether the request just read offers another protocol; CONNECT does not count."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _head_without_offer(self) -> bytes:
        line = self.parser.get_method(), self.url, self.parser.get_http_version().encode()
        kept_headers = [pair for pair in self.headers if pair[0] != b"upgrade"]
        return b"%b %b HTTP/%b\r\n%b\r\n" % (
            *line,
            b"".join(b"%b: %b\r\n" % pair for pair in kept_headers),
        )

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        if self.transport.is_closing() or self._offers_upgrade():
            return
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        self._head = -1
        if size > LONGEST_HEAD:
            self._refuse_long_head()
            return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head = 0
        if not self.transport.is_closing() and not self._offers_upgrade():
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def shutdown(self) -> None:
        """End this connection after the answer under way.

        A connection accepted without a request yet usually has one coming. It is waited for, or a
        restart would refuse a client that came just before it.
        """
        if self.cycle is None:
            self.loop.call_later(_LAST_S, super().shutdown)
        else:
            super().shutdown()

    def _start_head_timer(self) -> None:
        self._late = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse_long_head(self) -> None:
        message = f"the request's line and headers are longer than {LONGEST_HEAD // 1024} KiB"
        body = bytes(
            gateway_answers.json_response(gateway_answers.error("openai", 431, message)).body
        )
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def on_body(self, body: bytes) -> None:
        """Discard the body of a request whose head was refused."""
        if not self.transport.is_closing():
            super().on_body(body)


def listening_sockets(
    listeners: Sequence[ListenAddress], shares_port: bool = False
) -> list[socket.socket]:
    """Return a listening socket for each address, from systemd if it started this process.

    With `shares_port`, one of them has a port whose other addresses another one has.

    Raises:
        errors.Problem: A socket is not available.
    """
    by_systemd = os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid())
    handed_sockets = {
        _address_of_socket(handed_socket): handed_socket
        for handed_socket in _sockets_from_systemd()
    }
    sockets = []
    for listener in listeners:
        listening = handed_sockets.pop((listener.address, listener.port), None)
        if listening is None and by_systemd:
            # A port that only this process holds is free for anybody once the process ends.
            where = (
                f"{listener.address}, port {listener.port}" if listener.port else listener.address
            )
            raise errors.Problem(
                f"systemd has not opened {where}. Remedy: systemctl restart {GATEWAY_SOCKET}; "
                f"systemctl status {GATEWAY_SOCKET} says why it could not"
            )
        sockets.append(
            _set_client_socket_options(listening or open_listener(listener, shares_port))
        )
    for spare_socket in handed_sockets.values():
        spare_socket.close()
    return sockets


def _sockets_from_systemd() -> list[socket.socket]:
    """Return the listening sockets from systemd, as in sd_listen_fds(3)."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    numbers = range(_FIRST, _FIRST + int(os.environ.get("LISTEN_FDS", "0")))
    for number in numbers:
        os.set_inheritable(number, False)
    return [socket.socket(fileno=number) for number in numbers]


def _address_of_socket(listening: socket.socket) -> tuple[str, int]:
    """Return address and port of a socket in the form of `ListenAddress`."""
    name = listening.getsockname()
    return (name, 0) if isinstance(name, str) else (name[0], name[1])


def _set_client_socket_options(listening: socket.socket) -> socket.socket:
    """Set the options that accepted connections inherit."""
    if listening.family != socket.AF_UNIX:
        # asyncio sets it only on sockets that name their protocol. Without it the end of an answer
        # waits 40 ms for the client's delayed acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The engine would go on for a client that has silently gone.
        for option in outgoing_connections.dead_peer_socket_options(unread=False):
            listening.setsockopt(*option)
    return listening


def open_listener(listener: ListenAddress, shares_port: bool = False) -> socket.socket:
    """Open a listening socket; raise Problem if that fails."""
    try:
        if not listener.port:
            return _open_unix_socket(Path(listener.address))
        family = socket.AF_INET6 if ":" in listener.address else socket.AF_INET
        return socket.create_server(
            (listener.address, listener.port),
            family=family,
            backlog=_BACKLOG,
            reuse_port=shares_port,
            dualstack_ipv6=listener.address == "::",
        )
    except OSError as fault:
        where, remedy = (
            f"{listener.address}, port {listener.port}",
            f"`ss -ltnp sport = :{listener.port}`",
        )
        if not listener.port:
            where, remedy = listener.address, f"`ls -ld {Path(listener.address).parent}`"
        message = f"cannot listen at {where}: {fault.strerror}. Remedy: {remedy} shows who does"
        raise errors.Problem(message) from fault


def _open_unix_socket(path: Path) -> socket.socket:
    """Open a Unix socket for the group of its folder's owner; replace one of an earlier run."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    path.chmod(0o660)
    listening.listen(_BACKLOG)
    return listening


def notify_systemd_ready() -> None:
    """Tell systemd that requests are answered (Type=notify); do nothing without a listener."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        # A leading "@" stands for an abstract socket.
        notify.sendto(b"READY=1", "\0" + address[1:] if address[0] == "@" else address)


def main(
    argv: list[str], paths: layout.Paths | None = None, target_path: Path = usage_totals.PATH
) -> int:
    """Run the command line; see the module's docstring. `target_path` holds persons' totals."""
    program_command_lines.parser(__doc__).parse_args(argv)
    paths = paths or layout.Paths()
    gateway, host = configuration.load(paths.gateway), config.load_host(paths.models)
    people = Keys(paths.gateway_keys)
    peers = peer_gateways.Peers(gateway, peer_gateways.client_context(gateway, paths))
    tls = peer_gateways.server_context(gateway, paths)
    totals = usage_totals.Usage(target_path)
    counts = Counts(totals)
    webui = asdict(gateway.webui) if gateway.webui else None
    hot = HotModel(host, paths)
    swaps = switch_queue.SwitchQueue(hot, host, gateway, paths, peers)
    application = app.Application(
        gateway=gateway,
        host=host,
        hot=hot,
        access=request_authentication.Access(
            gateway, people, peers, request_authentication.open_port_key(gateway)
        ),
        peers=peers,
        counts=counts,
        swaps=swaps,
        page=Page(
            Facts(host, paths),
            peers.facts_by_peer if gateway.peers else None,
            paths.gateway_page,
            History(gateway.prometheus) if gateway.prometheus else None,
            lambda: {"use": counts.page_figures(), "webui_at": webui},
        ),
        authority=paths.authority,
    )
    listeners = Listeners(gateway.listeners, peer_gateways.expected_peer_names(gateway))
    sockets = listening_sockets(gateway.listeners_with_socket, gateway.shares_port)
    for listener in gateway.listeners:
        where = (
            address_text.address_with_port(listener.address, listener.port)
            if listener.port
            else listener.address
        )
        event_lines.say(
            f"lockstep gateway: {where} ({' '.join((listener.kind, *listener.models))})"
        )
    # Connections wait in the sockets' queues until the loop runs.
    notify_systemd_ready()
    beside = [totals.write_periodically()]
    if gateway.ttl_s is not None:
        beside.append(IdleStop(hot, host, swaps, gateway.ttl_s, paths).check_until_cancelled())
    by_kind = list(
        zip((listener.kind for listener in gateway.listeners_with_socket), sockets, strict=True)
    )
    server = GatewayServer(
        _uvicorn_config(application, listeners),
        [listening for kind, listening in by_kind if kind == "peers"],
        tls,
    )
    plain_sockets = [listening for kind, listening in by_kind if kind != "peers"]
    uvloop.run(_answer_until_signal(server, plain_sockets, beside))
    return errors.EXIT_DONE


class GatewayServer(uvicorn.Server):
    """uvicorn's server, which ends after a signal instead of raising it again.

    At `peer_sockets` it speaks TLS, with `tls` as its side.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        peer_sockets: Sequence[socket.socket],
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(config)
        self._peer_sockets, self._tls = peer_sockets, tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections at all sockets."""
        await super().startup(sockets)
        for listening in self._peer_sockets:
            self.servers.append(
                await asyncio.get_running_loop().create_server(
                    self._protocol,
                    sock=listening,
                    ssl=self._tls,
                    ssl_handshake_timeout=HEAD_S,
                    backlog=_BACKLOG,
                )
            )

    def _protocol(self) -> asyncio.Protocol:
        protocol: type[Protocol] = self.config.http_protocol_class  # type: ignore[assignment]
        return protocol(self.config, self.server_state, self.lifespan.state)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, then finish what is left."""
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_number, self.handle_exit, signal_number, None)
        yield


def _uvicorn_config(application: app.Application, listeners: Listeners) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        http=type("ProtocolOfListeners", (Protocol,), {"listeners": listeners}),
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_S,
    )


async def _answer_until_signal(
    server: GatewayServer,
    sockets: list[socket.socket],
    beside: Sequence[Coroutine[Any, Any, None]],
) -> None:
    """Answer requests until a signal; `beside` is cancelled then."""
    tasks = [asyncio.create_task(work) for work in beside]
    try:
        await server.serve(sockets)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
