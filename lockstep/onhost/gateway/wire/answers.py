"""Answers of the gateway itself: errors in the form of the API that was asked, and JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal

from starlette.responses import Response

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
#: Names in lower case, with values, as ASGI has them.
Headers = list[tuple[bytes, bytes]]

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


@dataclass(eq=False)
class Refused(Exception):
    """The gateway answers this request itself."""

    status: int  #: HTTP status.
    message: str  #: What is wrong, and what helps.
    reason: str  #: One word for the counts.
    retry_after_s: float | None = None  #: When it is worth asking again; None: not said.
    close: bool = False  #: Whether the rest of the request's body is not waited for.


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


def part(body: bytes = b"", more: bool = True) -> Message:
    """One piece of an answer's body; `more`: it is not the last one."""
    return {"type": "http.response.body", "body": body, "more_body": more}


def whole(body: bytes, kind: str, status: int = 200) -> Response:
    """A whole answer of a type; nothing may keep it or take it for another type."""
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    return Response(body, status, headers, kind)


def document(value: object, status: int = 200) -> Response:
    """A JSON document."""
    return whole(json.dumps(value).encode(), "application/json", status)


async def refuse(receive: Receive, send: Send, api: Api, refused: Refused) -> None:
    """Send an error.

    A body that is not waited for is still taken for a moment after the answer: a client that is
    cut off while it sends does not read why.
    """
    answer = document(error(api, refused.status, refused.message), refused.status)
    if refused.status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    if refused.retry_after_s is not None:
        answer.headers["retry-after"] = str(max(1, round(refused.retry_after_s)))
    if refused.close:
        answer.headers["connection"] = "close"
    start = {"type": "http.response.start", "status": answer.status_code}
    await send({**start, "headers": answer.raw_headers})
    await send(part(bytes(answer.body)))
    if refused.close:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await _drain(receive)
    await send(part(more=False))


async def _drain(receive: Receive) -> None:
    left = _LINGER_BYTES
    while left > 0:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return
        left -= len(message.get("body", b""))
