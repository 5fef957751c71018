"""The gateway: every model of this Spark, and of its twins, under one address.

usage: gateway

Reads gateway.json, targets.json and the keys of persons, and listens at every door that the deploy
named. Forwards each request to the model that it names, where that is hot; asks for a key where
other machines can reach it; tells what is hot, and what it counted. docs/gateway.md has the paths.

Needs the packages of the tools' environment. Where systemd starts it, systemd has opened its ports
and keeps them open; elsewhere it opens them itself.

exit codes: 0 stopped, 1 a port is not open or a key is missing, 2 wrong use
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httptools
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lockstep.onhost.core import config, errors, layout, output, program
from lockstep.onhost.gateway import access, app, configuration, connections, peers, swap, usage
from lockstep.onhost.gateway.configuration import ANYWHERE, Door
from lockstep.onhost.gateway.counts import Counts
from lockstep.onhost.gateway.history import History
from lockstep.onhost.gateway.hot import Hot
from lockstep.onhost.gateway.keys import Keys
from lockstep.onhost.gateway.page import Page
from lockstep.onhost.gateway.rest import Rest
from lockstep.onhost.gateway.wire import answers
from lockstep.onhost.operator.facts import Facts
from lockstep.onhost.systemd.generation import GATEWAY_SOCKET

# Longer than clients keep an idle connection, so that the client is the one to close it.
_KEEP_ALIVE_S = 75
# When the unit is stopped there is nothing to wait for: a client asks again, an engine goes on.
_STOP_S = 2
#: Bytes of a request's line and headers together: an agent's are below 4 KiB.
LONGEST_HEAD = 64 * 1024
#: Seconds in which they must have come.
HEAD_S = 30.0
_BACKLOG = 1024
_FIRST = 3  # The first descriptor that systemd hands over (sd_listen_fds(3)).
#: Seconds in which the first request of a connection may come that was accepted before the end.
_LAST_S = 0.5


class Doors:
    """All listeners: their sockets, and which door a connection came to."""

    def __init__(self, doors: Sequence[Door]) -> None:
        self._doors = {(door.address, door.port): door for door in doors}

    def of(self, transport: asyncio.BaseTransport) -> Door:
        """The door of a connection: that of the address it came to, else that of all addresses."""
        name = transport.get_extra_info("sockname")
        if isinstance(name, str):
            return self._doors[(name, 0)]
        address, port = name[0].removeprefix("::ffff:"), name[1]
        if (found := self._doors.get((address, port))) is not None:
            return found
        return next(self._doors[(each, port)] for each in ANYWHERE if (each, port) in self._doors)


class Protocol(HttpToolsProtocol):
    """uvicorn's, with a bound for the head of a request, and the door in its scope.

    An offer to speak another protocol is not taken up (RFC 9110, 7.8). Java's HttpClient offers
    HTTP/2 with each first request, and httptools takes that for the end of HTTP: it gives no body.
    So such a head is read once more, without the offer.

    uvicorn tells the last request that it has read that the client is gone. Where a client sends
    the next one before it has its answer, that is not the one which is being answered: that one
    would go on, with its engine, and fail when it writes to a closed transport.
    """

    doors: Doors

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head = 0
        self._late: asyncio.TimerHandle | None = None
        self._answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self.app_state = {"door": self.doors.of(transport)}
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_longer_late()
        if self._answering is not None:
            # From here on it receives a disconnect, and what it sends goes nowhere.
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open for answers, for the client sends no more.

        One that has closed looks the same until something is written to it, so a request that
        keeps an engine busy ends with its client's half. What only asks is answered at once.
        """
        asked = [each for each in (self._answering, self.cycle) if each is not None]
        if not asked or any(each.scope["method"] not in ("GET", "HEAD") for each in asked):
            return False
        self.cycle.keep_alive = False
        return not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        if self._head >= 0:
            self._head += len(data)
        self._unset_keepalive_if_required()
        rest: bytes | memoryview = data
        try:
            while rest:
                rest = self._feed(rest)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._head > LONGEST_HEAD and not self.transport.is_closing():
            self._too_long()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._late is None:
            self._wait_for_head()

    def _feed(self, data: bytes | memoryview) -> bytes | memoryview:
        """Parse up to the end, or to that of a head with an offer; gives what is left."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._offers():
                head, self.parser = self._head_without_offer(), httptools.HttpRequestParser(self)
                self.parser.feed_data(head)
                return memoryview(data)[offer.args[0] :]
        return b""

    def _offers(self) -> bool:
        """Whether the request just read offers another protocol: CONNECT is no offer."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _head_without_offer(self) -> bytes:
        line = self.parser.get_method(), self.url, self.parser.get_http_version().encode()
        rest = [pair for pair in self.headers if pair[0] != b"upgrade"]
        return b"%b %b HTTP/%b\r\n%b\r\n" % (*line, b"".join(b"%b: %b\r\n" % pair for pair in rest))

    def on_headers_complete(self) -> None:
        self._no_longer_late()
        if self.transport.is_closing() or self._offers():
            return
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        self._head = -1
        if size > LONGEST_HEAD:
            self._too_long()
            return
        super().on_headers_complete()
        # On the wire as it came, whatever it is quoted like.
        self.scope["state"]["target"] = self.url

    def on_message_complete(self) -> None:
        self._head = 0
        if not self.transport.is_closing() and not self._offers():
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def shutdown(self) -> None:
        """End this connection with the answer under way.

        One that was accepted without a request yet has one coming, as a rule: it is waited for, or
        a restart would refuse somebody who came just before it.
        """
        if self.cycle is None:
            self.loop.call_later(_LAST_S, super().shutdown)
        else:
            super().shutdown()

    def _wait_for_head(self) -> None:
        self._late = self.loop.call_later(HEAD_S, self.transport.close)

    def _no_longer_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_long(self) -> None:
        said = f"the request's line and headers are longer than {LONGEST_HEAD // 1024} KiB"
        body = bytes(answers.document(answers.error("openai", 431, said)).body)
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def on_body(self, body: bytes) -> None:
        """Of a request whose head was refused, the body is nobody's."""
        if not self.transport.is_closing():
            super().on_body(body)


def listening_sockets(doors: Sequence[Door]) -> list[socket.socket]:
    """A listening socket for each of these doors: systemd's, where systemd started this process.

    Problem where one cannot be had.
    """
    by_systemd = os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid())
    handed = {_place(each): each for each in _handed_over()}
    found = []
    for door in doors:
        listening = handed.pop((door.address, door.port), None)
        if listening is None and by_systemd:
            # A port that is open here alone closes with this process, and then anybody takes it.
            where = f"{door.address}, port {door.port}" if door.port else door.address
            raise errors.Problem(
                f"systemd has not opened {where}. Remedy: systemctl restart {GATEWAY_SOCKET}; "
                f"systemctl status {GATEWAY_SOCKET} says why it could not"
            )
        found.append(_for_clients(listening or opened(door)))
    for unasked in handed.values():
        unasked.close()
    return found


def _handed_over() -> list[socket.socket]:
    """Listening sockets that systemd hands over, as sd_listen_fds(3) has it."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    numbers = range(_FIRST, _FIRST + int(os.environ.get("LISTEN_FDS", "0")))
    for number in numbers:
        os.set_inheritable(number, False)
    return [socket.socket(fileno=number) for number in numbers]


def _place(listening: socket.socket) -> tuple[str, int]:
    """Address and port of a socket, as its door has them."""
    name = listening.getsockname()
    return (name, 0) if isinstance(name, str) else (name[0], name[1])


def _for_clients(listening: socket.socket) -> socket.socket:
    """Set what each connection inherits that is accepted there."""
    if listening.family != socket.AF_UNIX:
        # asyncio sets it only where a socket names its protocol, and without it the end of an
        # answer waits 40 ms for the client's delayed acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # For a client that is gone without a word its engine would go on.
        for option in connections.alive(unread=False):
            listening.setsockopt(*option)
    return listening


def opened(door: Door) -> socket.socket:
    """A listening socket; Problem where it cannot be opened."""
    try:
        if not door.port:
            return _local(Path(door.address))
        family = socket.AF_INET6 if ":" in door.address else socket.AF_INET
        return socket.create_server(
            (door.address, door.port),
            family=family,
            backlog=_BACKLOG,
            dualstack_ipv6=door.address == "::",
        )
    except OSError as fault:
        where, remedy = f"{door.address}, port {door.port}", f"`ss -ltnp sport = :{door.port}`"
        if not door.port:
            where, remedy = door.address, f"`ls -ld {Path(door.address).parent}`"
        said = f"cannot listen at {where}: {fault.strerror}. Remedy: {remedy} shows who does"
        raise errors.Problem(said) from fault


def _local(path: Path) -> socket.socket:
    """A Unix socket for the group of its folder's owner; one of an earlier run is replaced."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    path.chmod(0o660)
    listening.listen(_BACKLOG)
    return listening


def ready() -> None:
    """Tell systemd that requests are answered (Type=notify); nothing where nobody asks."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        # A leading "@" stands for an abstract socket.
        notify.sendto(b"READY=1", "\0" + address[1:] if address[0] == "@" else address)


def main(argv: list[str], paths: layout.Paths | None = None, kept: Path = usage.PATH) -> int:
    """Command line; see the module's docstring. `kept`: where totals of persons are kept."""
    program.parser(__doc__).parse_args(argv)
    paths = paths or layout.Paths()
    gateway, host = configuration.load(paths.gateway), config.load_host(paths.targets)
    people = Keys(paths.gateway_keys)
    twins = peers.Peers(gateway, peers.key())
    totals = usage.Usage(kept)
    counts = Counts(totals)
    webui = asdict(gateway.webui) if gateway.webui else None
    hot = Hot(host, paths)
    swaps = swap.Swaps(hot, host, gateway, paths, twins)
    application = app.Application(
        gateway=gateway,
        host=host,
        hot=hot,
        access=access.Access(gateway, people, twins, access.host_key(gateway)),
        peers=twins,
        counts=counts,
        swaps=swaps,
        page=Page(
            Facts(host, paths),
            twins.facts if gateway.peers else None,
            paths.gateway_page,
            History(gateway.prometheus) if gateway.prometheus else None,
            lambda: {"use": counts.use(), "webui_at": webui},
        ),
        authority=paths.authority,
    )
    doors = Doors(gateway.doors)
    sockets = listening_sockets(gateway.listening)
    for door in gateway.doors:
        where = f"{door.address}:{door.port}" if door.port else door.address
        output.say(f"lockstep gateway: {where} ({' '.join((door.kind, *door.targets))})")
    # Connections wait in the sockets' queues until the loop runs.
    ready()
    beside = [totals.keep()]
    if gateway.ttl_s is not None:
        beside.append(Rest(hot, host, swaps, gateway.ttl_s, paths).forever())
    uvloop.run(_serve(application, doors, sockets, beside))
    return errors.EXIT_DONE


class Server(uvicorn.Server):
    """uvicorn's, which ends by itself after a signal instead of sending it to itself anew."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, and then do what is left to do."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self.handle_exit, each, None)
        yield


async def _serve(
    application: app.Application,
    doors: Doors,
    sockets: list[socket.socket],
    beside: Sequence[Coroutine[Any, Any, None]],
) -> None:
    """Answer until a signal; `beside` is cancelled then."""
    uvicorn_config = uvicorn.Config(
        application,
        http=type("ProtocolOfDoors", (Protocol,), {"doors": doors}),
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
    tasks = [asyncio.create_task(work) for work in beside]
    try:
        await Server(uvicorn_config).serve(sockets=sockets)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
