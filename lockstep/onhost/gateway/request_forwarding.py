"""Forwarding of requests to an engine or another gateway, and of answers back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

import httpx2

from lockstep.onhost.core import errors, event_lines
from lockstep.onhost.gateway.request_counters import TAIL
from lockstep.onhost.gateway.wire import gateway_answers
from lockstep.onhost.gateway.wire.gateway_answers import Api, GatewayRefusal, Headers, Message, Send

T = TypeVar("T")
#: A request's body; None without one.
Content = bytes | AsyncIterator[bytes] | None
# RFC 9110, 7.6.1: headers of one connection. Expect was answered when the body was read.
_HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer"),
        *(b"transfer-encoding", b"upgrade", b"expect"),
    )
)
_CONNECT_TIMEOUT_S = 5.0
_TIMEOUT = {"connect": _CONNECT_TIMEOUT_S, "read": None, "write": None}
_LONGEST_ERROR = 64 * 1024  # For an engine's error after a stream has begun.
#: Answers of FastAPI's engines, and of llama.cpp's server, to a path that they do not serve.
_NO_PATH = {404: "Not Found", 405: "Method Not Allowed"}
_NO_FILE = ("File Not Found", "Not Found")
_RETRY_S = 5  #: Seconds until an engine that does not listen is worth asking again.


class Upstream:
    """Client of engines and other gateways.

    It opens one connection per request: an engine closes idle ones at any time, and a generation
    that this cut off must not be requested twice. It is a transport, not a client: redirects,
    cookies, compression and proxies are not followed or added.
    """

    def __init__(self, transport: httpx2.AsyncHTTPTransport) -> None:
        self._transport = transport

    async def send_request(
        self, scope: Message, url: str, headers: Headers, content: Content
    ) -> httpx2.Response:
        """Send a request and return the head of its answer.

        `EngineAnswer.forward_answer` reads the body.

        Method, path and query are the client's.

        Raises:
            GatewayRefusal: Nobody listens at `url`, or no answer came.
        """
        target = scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        # The extension `target` goes on the wire as the client quoted it.
        request = httpx2.Request(
            scope["method"],
            url,
            headers=headers,
            content=content,
            extensions={"target": target, "timeout": _TIMEOUT},
        )
        try:
            return await self._transport.handle_async_request(request)
        except httpx2.ConnectError as fault:
            # vLLM listens only once it is ready.
            message = f"the engine at {url} is loading or down"
            raise GatewayRefusal(503, message, "down", _RETRY_S) from fault
        except httpx2.TransportError as fault:
            message = f"the engine at {url} gave no answer: {errors.why(fault)}"
            raise GatewayRefusal(502, message, "no answer") from fault


class EngineAnswer:
    """One answer to a client, with errors in the form of its API.

    `keepalive_s` is the interval of comments while a stream has not begun; None for no stream.
    """

    def __init__(self, send: Send, api: Api, keepalive_s: float | None) -> None:
        self._send = send
        self._api = api
        self._keepalive_s = keepalive_s
        #: Headers that the gateway adds to the engine's own.
        self.headers: Headers = []
        #: The refusal if the engine has no such path; None passes the engine's own answer on.
        self.no_such_path: GatewayRefusal | None = None
        #: Whether the client has received the answer's head.
        self.has_started = False
        #: Called when the model's answer begins.
        self.first_byte: Callable[[], None] = lambda: None

    async def await_with_keepalive(self, work: Awaitable[T]) -> T:
        """Await work and return its result; send comments to a streaming client meanwhile."""
        if self._keepalive_s is None:
            return await work
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait((task,), timeout=self._keepalive_s))[0]:
                await self._send_keepalive_comment()
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
            raise
        return task.result()

    async def end_with_error_event(self, refusal: GatewayRefusal) -> None:
        """End a stream that has begun with comments by an error event."""
        event = gateway_answers.error_event(self._api, refusal.status, refusal.message)
        await self._send(gateway_answers.body_part(event, more=False))

    async def send_event(self, value: object) -> None:
        """Send one server-sent event of the gateway's own."""
        await self._start_stream()
        await self._send(
            gateway_answers.body_part(b"data: " + json.dumps(value).encode() + b"\n\n")
        )

    async def end_event_stream(self) -> None:
        """End an answer that consists of the gateway's own events."""
        await self._start_stream()
        await self._send(gateway_answers.body_part(more=False))

    async def forward_answer(self, answer: httpx2.Response) -> bytes:
        """Send an answer as it comes, and return its last bytes, which contain the usage."""
        try:
            return await self._forward_answer(answer)
        finally:
            await answer.aclose()

    async def _forward_answer(self, answer: httpx2.Response) -> bytes:
        assert isinstance(answer.stream, httpx2.AsyncByteStream)
        chunks = aiter(answer.stream)
        events = answer.headers.get("content-type", "").startswith("text/event-stream")
        head = b""
        if self.no_such_path and answer.status_code in _NO_PATH:
            head = await _read_error_answer(chunks)
            if _lacks_path(head):
                raise self.no_such_path
        if self.has_started and not events:
            raise _error_of_engine_answer(
                answer.status_code, head or await _read_error_answer(chunks)
            )
        if not self.has_started:
            headers = end_to_end_headers(answer.headers.raw) + self.headers
            start = {"type": "http.response.start", "status": answer.status_code}
            await self._send({**start, "headers": headers})
            self.has_started = True
        if not events or {"content-length", "content-encoding"} & answer.headers.keys():
            self._keepalive_s = None
        tail = b""
        try:
            chunk = head or await self.await_with_keepalive(anext(chunks, b""))
            self.first_byte()
            while chunk:
                # Waiting for a slow client slows the engine too.
                await self._send(gateway_answers.body_part(chunk))
                tail = (tail + chunk)[-TAIL:]
                # Many events may come at once; this lets a client's departure be noticed between
                # two.
                await asyncio.sleep(0)
                chunk = await anext(chunks, b"")
        except httpx2.TransportError as fault:
            # Without an end the server cuts the connection, as the engine did.
            event_lines.say(
                f"lockstep gateway: the engine broke off an answer: {errors.why(fault)}"
            )
            return tail
        await self._send(gateway_answers.body_part(more=False))
        return tail

    async def _send_keepalive_comment(self) -> None:
        await self._start_stream()
        await self._send(gateway_answers.body_part(gateway_answers.COMMENT))

    async def _start_stream(self) -> None:
        if not self.has_started:
            self.has_started = True
            start = {"type": "http.response.start", "status": 200}
            await self._send({**start, "headers": gateway_answers.EVENT_STREAM + self.headers})


def _error_of_engine_answer(status: int, body: bytes) -> GatewayRefusal:
    """Return an engine's plain answer as an error for a client that already reads a stream."""
    message = body[:_LONGEST_ERROR].decode("utf-8", "replace")
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        message = str(json.loads(message)["error"]["message"])
    return GatewayRefusal(status, message or f"HTTP {status}", "engine's")


async def _read_error_answer(chunks: AsyncIterator[bytes]) -> bytes:
    """Read an error answer, up to the length limit."""
    body = b""
    with contextlib.suppress(httpx2.TransportError):
        async for chunk in chunks:
            body += chunk
            if len(body) > _LONGEST_ERROR:
                break
    return body


def _lacks_path(body: bytes) -> bool:
    """Tell whether an engine's answer means that it lacks the path itself."""
    try:
        document = json.loads(body)
        return (
            document.get("detail") in _NO_PATH.values() or document["error"]["message"] in _NO_FILE
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return not body


def end_to_end_headers(
    headers: Iterable[tuple[bytes, bytes]], but: Iterable[bytes] = ()
) -> Headers:
    """Return headers without those of one connection, in order, repeated ones included.

    `but` are further names to leave out, in lower case.
    """
    pairs = [(name.lower(), value) for name, value in headers]
    listed_names = b",".join(value for name, value in pairs if name == b"connection")
    hop_names = {word.strip().lower() for word in listed_names.split(b",")}
    left_out = _HOP_BY_HOP.union(hop_names, but)
    return [pair for pair in pairs if pair[0] not in left_out]
