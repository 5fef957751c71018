"""Answers of the gateway itself: errors in the form of the requested API, and JSON."""

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
#: Pairs of lower-case name and value, as in ASGI.
Headers = list[tuple[bytes, bytes]]

Api = Literal["openai", "responses", "anthropic"]
#: A comment that readers skip, so that no client or proxy times out.
COMMENT = b": waiting\n\n"
#: Server-sent events, which proxies must not buffer.
EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
# For a body that nobody wants.
_LINGER_S, _LINGER_BYTES = 2.0, 2**20
# Anthropic's names (docs.anthropic.com, API errors); OpenAI's clients use the status.
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
class GatewayRefusal(Exception):
    """A request that the gateway refuses with an error of its own."""

    status: int  #: HTTP status.
    message: str  #: The fault and its remedy.
    reason: str  #: One word for the counters.
    #: Seconds until a retry is worthwhile; None leaves the header out.
    retry_after_s: float | None = None
    close: bool = False  #: Whether to close without waiting for the rest of the body.


def api_of(path: str) -> Api:
    """Return the API that a path belongs to."""
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "responses" if path.startswith("/v1/responses") else "openai"


def error(api: Api, status: int, message: str) -> dict[str, Any]:
    """Return an error in the form of an API."""
    kind = _TYPES.get(status, "api_error")
    if api == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}}
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def error_event(api: Api, status: int, message: str) -> bytes:
    """Return an error as the last event of a stream that has begun."""
    error_document = error(api, status, message)
    if api == "responses":
        # OpenAI's event has these at the top; its Python client looks for `error` as well.
        error_document |= {"type": "error", "code": str(status), "message": message, "param": None}
        error_document["sequence_number"] = 0
    data = b"data: " + json.dumps(error_document).encode() + b"\n\n"
    return data if api == "openai" else b"event: error\n" + data


def body_part(body: bytes = b"", more: bool = True) -> Message:
    """Return one piece of an answer's body; with `more`, not the last one."""
    return {"type": "http.response.body", "body": body, "more_body": more}


def whole_response(body: bytes, kind: str, status: int = 200) -> Response:
    """Return a whole answer of a type, with headers against caching and type guessing."""
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    return Response(body, status, headers, kind)


def json_response(value: object, status: int = 200) -> Response:
    """Return a JSON answer."""
    return whole_response(json.dumps(value).encode(), "application/json", status)


async def send_error(receive: Receive, send: Send, api: Api, refusal: GatewayRefusal) -> None:
    """Send an error.

    If the body is not waited for, it is still read for a moment after the answer: a client that is
    cut off while it sends does not read the reason.
    """
    answer = json_response(error(api, refusal.status, refusal.message), refusal.status)
    if refusal.status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    if refusal.retry_after_s is not None:
        answer.headers["retry-after"] = str(max(1, round(refusal.retry_after_s)))
    if refusal.close:
        answer.headers["connection"] = "close"
    start = {"type": "http.response.start", "status": answer.status_code}
    await send({**start, "headers": answer.raw_headers})
    await send(body_part(bytes(answer.body)))
    if refusal.close:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await _drain_request_body(receive)
    await send(body_part(more=False))


async def _drain_request_body(receive: Receive) -> None:
    bytes_left = _LINGER_BYTES
    while bytes_left > 0:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return
        bytes_left -= len(message.get("body", b""))
