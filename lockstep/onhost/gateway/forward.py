"""Requests on their way to an engine or another gateway, and answers on their way back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import httpx2

from lockstep.onhost.core import errors, output
from lockstep.onhost.gateway import connections
from lockstep.onhost.gateway.connections import SocketOption
from lockstep.onhost.gateway.counts import TAIL
from lockstep.onhost.gateway.wire import answers
from lockstep.onhost.gateway.wire.answers import Api, Headers, Message, Refused, Send

T = TypeVar("T")
#: A request's body; None: there is none.
Content = bytes | AsyncIterator[bytes] | None
# RFC 9110, 7.6.1: what concerns one connection. Expect was answered when its body was read.
_HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer"),
        *(b"transfer-encoding", b"upgrade", b"expect"),
    )
)
_CONNECT_TIMEOUT_S = 5.0
_TIMEOUT = {"connect": _CONNECT_TIMEOUT_S, "read": None, "write": None}
_LONGEST_ERROR = 64 * 1024  # An error of an engine that comes after a stream has begun.
#: What FastAPI's engines say of a path that they do not serve, and llama.cpp's server.
_NO_PATH = {404: "Not Found", 405: "Method Not Allowed"}
_NO_FILE = ("File Not Found", "Not Found")
_RETRY_S = 5  #: When an engine that does not listen is worth asking again, seconds.


class Upstream:
    """Engines and other gateways.

    One connection per request: an engine closes idle ones when it likes, and a generation that was
    cut off by that must not be asked for twice. Redirects, cookies, compression and proxies are the
    business of a client, which a transport is not.
    """

    def __init__(self, options: Sequence[SocketOption] = ()) -> None:
        self._transport = connections.transport(options)

    async def ask(
        self, scope: Message, url: str, headers: Headers, content: Content
    ) -> httpx2.Response:
        """The head of an answer; its body is read by `Answer.pass_on`.

        Method, path and query are the client's. Refused: nobody listens at `url`, or no answer
        came.
        """
        target = scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        # `target` as an extension goes on the wire as it came, whatever it is quoted like.
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
            said = f"the engine at {url} is loading or down"
            raise Refused(503, said, "down", _RETRY_S) from fault
        except httpx2.TransportError as fault:
            said = f"the engine at {url} gave no answer: {errors.why(fault)}"
            raise Refused(502, said, "no answer") from fault


class Answer:
    """One answer to a client, with errors in the forms of an API.

    `keepalive_s`: between two comments while a stream has not begun; None: this is no stream.
    """

    def __init__(self, send: Send, api: Api, keepalive_s: float | None) -> None:
        self._send = send
        self._api = api
        self._keepalive_s = keepalive_s
        #: What the gateway says in the head, beside the engine's own.
        self.headers: Headers = []
        #: The refusal where the engine has no such path; None: its own answer goes on.
        self.no_such_path: Refused | None = None
        #: Whether the client has the answer's head.
        self.started = False
        #: Told when the model's answer begins.
        self.first_byte: Callable[[], None] = lambda: None

    async def patiently(self, work: Awaitable[T]) -> T:
        """What work gives, with comments to the client of a stream while it takes its time."""
        if self._keepalive_s is None:
            return await work
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait((task,), timeout=self._keepalive_s))[0]:
                await self._comment()
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
            raise
        return task.result()

    async def break_off(self, refused: Refused) -> None:
        """An error as the last event of a stream that has begun with comments."""
        event = answers.error_event(self._api, refused.status, refused.message)
        await self._send(answers.part(event, more=False))

    async def event(self, value: object) -> None:
        """One server-sent event of the gateway's own."""
        await self._start()
        await self._send(answers.part(b"data: " + json.dumps(value).encode() + b"\n\n"))

    async def end(self) -> None:
        """The end of an answer of such events."""
        await self._start()
        await self._send(answers.part(more=False))

    async def pass_on(self, answer: httpx2.Response) -> bytes:
        """Send an answer as it comes. Gives its last bytes, which tell its usage."""
        try:
            return await self._pass_on(answer)
        finally:
            await answer.aclose()

    async def _pass_on(self, answer: httpx2.Response) -> bytes:
        assert isinstance(answer.stream, httpx2.AsyncByteStream)
        chunks = aiter(answer.stream)
        events = answer.headers.get("content-type", "").startswith("text/event-stream")
        head = b""
        if self.no_such_path and answer.status_code in _NO_PATH:
            head = await _read_error(chunks)
            if _says_no_path(head):
                raise self.no_such_path
        if self.started and not events:
            raise _error(answer.status_code, head or await _read_error(chunks))
        if not self.started:
            headers = end_to_end(answer.headers.raw) + self.headers
            start = {"type": "http.response.start", "status": answer.status_code}
            await self._send({**start, "headers": headers})
            self.started = True
        if not events or {"content-length", "content-encoding"} & answer.headers.keys():
            self._keepalive_s = None
        tail = b""
        try:
            chunk = head or await self.patiently(anext(chunks, b""))
            self.first_byte()
            while chunk:
                # Waits while the client is slow, and so does the engine then.
                await self._send(answers.part(chunk))
                tail = (tail + chunk)[-TAIL:]
                # Many events may come at once: that the client has left is to be seen between two.
                await asyncio.sleep(0)
                chunk = await anext(chunks, b"")
        except httpx2.TransportError as fault:
            # Without an end the server cuts the connection, as the engine did.
            output.say(f"lockstep gateway: the engine broke off an answer: {errors.why(fault)}")
            return tail
        await self._send(answers.part(more=False))
        return tail

    async def _comment(self) -> None:
        await self._start()
        await self._send(answers.part(answers.COMMENT))

    async def _start(self) -> None:
        if not self.started:
            self.started = True
            start = {"type": "http.response.start", "status": 200}
            await self._send({**start, "headers": answers.EVENT_STREAM + self.headers})


def _error(status: int, body: bytes) -> Refused:
    """An answer of the engine that is no stream, for a client that already reads one."""
    message = body[:_LONGEST_ERROR].decode("utf-8", "replace")
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        message = str(json.loads(message)["error"]["message"])
    return Refused(status, message or f"HTTP {status}", "engine's")


async def _read_error(chunks: AsyncIterator[bytes]) -> bytes:
    """An answer that is an error, or as much of it as one may have."""
    body = b""
    with contextlib.suppress(httpx2.TransportError):
        async for chunk in chunks:
            body += chunk
            if len(body) > _LONGEST_ERROR:
                break
    return body


def _says_no_path(body: bytes) -> bool:
    """Whether an engine's answer says that it has no such path, and nothing of the request."""
    try:
        said = json.loads(body)
        return said.get("detail") in _NO_PATH.values() or said["error"]["message"] in _NO_FILE
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return not body


def end_to_end(headers: Iterable[tuple[bytes, bytes]], but: Iterable[bytes] = ()) -> Headers:
    """The headers without those of one connection, in order, repeated ones included.

    `but`: names in lower case that are left out too.
    """
    pairs = [(name.lower(), value) for name, value in headers]
    listed = b",".join(value for name, value in pairs if name == b"connection")
    named = {word.strip().lower() for word in listed.split(b",")}
    left_out = _HOP_BY_HOP.union(named, but)
    return [pair for pair in pairs if pair[0] not in left_out]
