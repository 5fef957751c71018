#!/usr/bin/env python3
"""Stand before an engine: merge messages of one role in a row, ask for an API key, or both.

usage: roles-proxy --listen ADDRESS --port PORT --engine URL [--merge] [--key]

With --merge, such messages in requests to /v1/chat/completions become one (`roles.py` says how).
With --key, only requests with the key of the unit's credential pass (`api_key.py`). Everything else
goes through as it comes, in both directions and without storing it: streams, errors, headers.
Whoever hangs up ends the work of the engine; whoever reads slowly slows the engine's stream down.

Needs uvicorn and httpx2, which the deploy installs at exact versions.

exit codes: 0 stopped, 1 the port cannot be opened or the key is missing, 2 wrong use
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import httpx2
import uvicorn

from lockstep.onhost.access import api_key
from lockstep.onhost.core import errors, output, program
from lockstep.onhost.gateway.wire import merge_roles

CHAT = b"/v1/chat/completions"
# RFC 9110, 7.6.1: what concerns one connection. Expect was answered when its body was read.
_HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer"),
        *(b"transfer-encoding", b"upgrade", b"expect"),
    )
)
_CONNECT_TIMEOUT_S = 5.0
# Longer than clients keep an idle connection, so that the client is the one to close it.
_KEEP_ALIVE_S = 75
_WHY = {
    401: "an API key is needed: Authorization: Bearer KEY",
    404: "this port serves /v1/, /metrics and /health",
}
# When the unit is stopped the engine stops too: there is nothing to wait for.
_STOP_S = 2

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class Gone(Exception):
    """The client closed its connection."""


class Proxy:
    """The ASGI application; `engine` is where the engine listens, without a path.

    `merge`: whether messages of one role become one; `guard`: who may ask, None for everybody.
    """

    def __init__(self, engine: str, merge: bool, guard: api_key.Guard | None) -> None:
        self._engine = httpx2.URL(engine)
        self._merge = merge
        self._guard = guard
        # One connection per request: the engine closes idle ones when it likes, and a generation
        # that was cut off by that must not be asked for twice. Redirects, cookies, compression
        # and proxies are the business of a client, which a transport is not.
        self._transport = httpx2.AsyncHTTPTransport(
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        if self._guard:
            refusal = self._guard.refusal(scope["method"], scope["raw_path"], scope["headers"])
            if refusal:
                await _refuse(send, refusal, _WHY[refusal], told=False)
                return
        body = Body(receive)
        work = asyncio.create_task(self._exchange(scope, body, send))
        watch = asyncio.create_task(body.until_gone())
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Whichever is left; for `work` this closes the connection to the engine.
            work.cancel()
            watch.cancel()
            done = await asyncio.gather(work, watch, return_exceptions=True)
        fault = done[0]
        if isinstance(fault, Exception) and not isinstance(fault, Gone):
            raise fault

    async def _exchange(self, scope: Message, body: Body, send: Send) -> None:
        try:
            answer = await self._transport.handle_async_request(await self._request(scope, body))
        except httpx2.ConnectError:
            # vLLM listens only once it is ready.
            await _refuse(send, 503, f"the engine at {self._engine} is loading or down")
            return
        except httpx2.TransportError as fault:
            detail = str(fault) or type(fault).__name__
            await _refuse(send, 502, f"the engine at {self._engine} gave no answer: {detail}")
            return
        try:
            await _pass_on(answer, send)
        finally:
            await answer.aclose()

    async def _request(self, scope: Message, body: Body) -> httpx2.Request:
        headers = _end_to_end(scope["headers"])
        named = {name for name, _ in scope["headers"]}
        content: bytes | AsyncIterator[bytes] | None = None
        if self._guard:
            # The key is for this port; an engine's log or its own clients need not see it.
            headers = [pair for pair in headers if pair[0] not in api_key.HEADERS]
        if self._merge and scope["method"] == "POST" and scope["path"].encode() == CHAT:
            content = merge_roles.merged_body(await body.whole())
            headers = [pair for pair in headers if pair[0] != b"content-length"]
        elif named & {b"content-length", b"transfer-encoding"}:
            content = body.chunks()
        else:
            body.nothing_expected()
        target = scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        # `target` as an extension goes on the wire as it came, whatever it is quoted like.
        return httpx2.Request(
            scope["method"],
            self._engine,
            headers=headers,
            content=content,
            extensions={
                "target": target,
                "timeout": {"connect": _CONNECT_TIMEOUT_S, "read": None, "write": None},
            },
        )


class Body:
    """What the client sends, read in one place, so that its going away is noticed at any time."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read = asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Gone when the client leaves in the middle of it."""
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Gone
            more = message.get("more_body", False)
            if chunk := message.get("body", b""):
                yield chunk
        self._read.set()

    async def whole(self) -> bytes:
        """The body at once; JSON cannot be merged before its end is known."""
        return b"".join([chunk async for chunk in self.chunks()])

    def nothing_expected(self) -> None:
        """A request without a body was read when its headers were."""
        self._read.set()

    async def until_gone(self) -> None:
        """Wait, once the body was read, until the client closes its connection."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _pass_on(answer: httpx2.Response, send: Send) -> None:
    headers = _end_to_end(answer.headers.raw)
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    try:
        assert isinstance(answer.stream, httpx2.AsyncByteStream)
        async for chunk in answer.stream:
            # Waits while the client is slow, and so does the engine then.
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            # Many events may come at once: that the client has left is to be seen between two.
            await asyncio.sleep(0)
    except httpx2.TransportError as fault:
        # Without an end the server cuts the connection, as the engine did.
        tell(f"the engine broke off an answer: {str(fault) or type(fault).__name__}")
        return
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _refuse(send: Send, status: int, message: str, told: bool = True) -> None:
    """An error of the proxy itself, in the form of the API; `told`: also in the journal."""
    # Strangers could fill the journal otherwise.
    if told:
        tell(message)
    error = {"message": message, "type": "proxy_error", "param": None, "code": status}
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json")]
    headers.append((b"content-length", str(len(body)).encode()))
    if status == 401:
        # Nor is the rest of a stranger's body waited for.
        headers += [(b"www-authenticate", b"Bearer"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers without those of one connection, in order, repeated ones included."""
    pairs = [(name.lower(), value) for name, value in headers]
    named = {
        word.strip().lower()
        for name, value in pairs
        if name == b"connection"
        for word in value.split(b",")
    }
    return [pair for pair in pairs if pair[0] not in _HOP_BY_HOP | named]


def tell(line: str) -> None:
    """One line for the journal."""
    output.say(f"lockstep roles: {line}")


def opened(address: str, port: int) -> socket.socket:
    """A listening socket; Problem where it cannot be opened."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listening = socket.create_server((address, port), family=family, backlog=1024)
        # What is accepted inherits it. asyncio sets it only where a socket names its protocol, and
        # without it the end of an answer waits 40 ms for the client's delayed acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as fault:
        raise errors.Problem(
            f"cannot listen at {address}, port {port}: {fault.strerror}. Remedy: "
            f"`ss -ltnp sport = :{port}` shows who does"
        ) from fault


def ready() -> None:
    """Tell systemd that requests are answered (Type=notify); nothing where nobody asks."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        # A leading "@" stands for an abstract socket.
        notify.sendto(b"READY=1", "\0" + address[1:] if address[0] == "@" else address)


def main(argv: list[str]) -> int:
    """Command line; see the module's docstring."""
    parser = program.parser(__doc__)
    parser.add_argument("--listen", default="127.0.0.1", metavar="ADDRESS")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine", required=True, metavar="URL")
    parser.add_argument("--merge", action="store_true", help="merge messages of one role in a row")
    parser.add_argument("--key", action="store_true", help="ask for the key of the credential")
    options = parser.parse_args(argv)
    guard = api_key.given() if options.key else None
    listening = opened(options.listen, options.port)
    config = uvicorn.Config(
        Proxy(options.engine, options.merge, guard),
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=1024,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_S,
    )
    tell(f"{options.listen}:{options.port} -> {options.engine}")
    # Connections wait in the socket's queue until the loop runs.
    ready()
    uvicorn.Server(config).run(sockets=[listening])
    return errors.EXIT_DONE
