"""Answers of the gateway itself: errors in the form of the API that was asked, and JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Literal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Pair = tuple[bytes, bytes]
Headers = list[Pair]

Api = Literal["openai", "responses", "anthropic"]
#: Nothing happens, and no time-out of a client or a proxy runs out. Readers skip it.
COMMENT = b": waiting\n\n"
#: A stream of server-sent events; whoever is between must not keep it back.
EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
# For a body that nobody wants.
_LINGER_S, _LINGER_BYTES = 2.0, 2**20
# Anthropic's names (docs.anthropic.com, API errors); OpenAI's clients go by the status.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    405: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
}


class Refused(Exception):
    """The gateway answers this request itself.

    Attributes:
        status: HTTP status.
        message: What is wrong, and what helps.
        reason: One word for the counts.
        retry_after_s: When it is worth asking again; None: not said.
        close: Whether the rest of the request's body is not waited for.
    """

    def __init__(
        self,
        status: int,
        message: str,
        reason: str,
        retry_after_s: float | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.close = close


def api_of(path: str) -> Api:
    """Whose API a path belongs to."""
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "responses" if path.startswith("/v1/responses") else "openai"


def error(api: Api, status: int, message: str) -> dict[str, Any]:
    """An error as the clients of an API read it."""
    kind = _TYPES.get(status, "api_error")
    if api == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}}
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def error_event(api: Api, status: int, message: str) -> bytes:
    """The same in a stream that has begun; it is the stream's last event."""
    said = error(api, status, message)
    if api == "responses":
        # OpenAI's event has these at the top; its Python client looks for `error` as well.
        said |= {"type": "error", "code": str(status), "message": message, "param": None}
        said["sequence_number"] = 0
    data = b"data: " + json.dumps(said).encode() + b"\n\n"
    return data if api == "openai" else b"event: error\n" + data


def as_json(value: object) -> bytes:
    """A JSON document."""
    return json.dumps(value).encode()


async def refuse(receive: Receive, send: Send, api: Api, refused: Refused) -> None:
    """Send an error.

    A body that is not waited for is still taken for a moment after the answer: a client that is
    cut off while it sends does not read why.
    """
    headers: Headers = []
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, round(refused.retry_after_s))).encode()))
    if refused.close:
        headers.append((b"connection", b"close"))
    body = as_json(error(api, refused.status, refused.message))
    await _send(send, body, b"application/json", refused.status, headers)
    if refused.close:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await _drain(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    left = _LINGER_BYTES
    while left > 0:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return
        left -= len(message.get("body", b""))


async def send_json(
    send: Send, value: object, status: int = 200, more: Sequence[Pair] = ()
) -> None:
    """Send a JSON document."""
    await send_bytes(send, as_json(value), b"application/json", status, more)


async def send_bytes(
    send: Send, body: bytes, kind: bytes, status: int = 200, more: Sequence[Pair] = ()
) -> None:
    """Send a whole answer of a type; nothing may keep it or take it for another type."""
    await _send(send, body, kind, status, more)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, body: bytes, kind: bytes, status: int, more: Sequence[Pair]) -> None:
    headers: Headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
