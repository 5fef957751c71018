"""Pages of listed origins may ask from a browser, with a key; of others none reads an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockstep.onhost.gateway.wire.cross_origin import CrossOrigin

LISTED = b"https://chat.example"
PAGES = CrossOrigin([LISTED.decode()])
ASKS = (b"access-control-request-method", b"POST")


def scope(method: str, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"method": method, "headers": [*headers]}


def test_only_a_question_of_a_listed_origin_is_answered_with_what_the_page_may_send():
    origin = (b"origin", LISTED)
    names = (b"access-control-request-headers", b"authorization, x-stainless-os")
    headers = dict(PAGES.preflight_headers(scope("OPTIONS", origin, ASKS, names)) or ())
    assert headers[b"access-control-allow-origin"] == LISTED
    assert headers[b"access-control-allow-headers"] == names[1]
    assert (headers[b"access-control-allow-methods"], headers[b"vary"]) == (b"GET, POST", b"Origin")
    assert b"access-control-allow-credentials" not in headers
    for method, pairs in (
        ("OPTIONS", [(b"origin", b"https://chat.example.evil"), ASKS]),
        ("OPTIONS", [origin]),
        ("OPTIONS", [ASKS]),
        ("POST", [origin, ASKS]),
    ):
        assert PAGES.preflight_headers(scope(method, *pairs)) is None, (method, pairs)
    assert CrossOrigin([]).preflight_headers(scope("OPTIONS", origin, ASKS)) is None


@pytest.mark.parametrize(
    ("pages", "origin", "allowed_origin", "vary"),
    [
        (PAGES, LISTED, LISTED, b"Origin"),
        (PAGES, b"https://other.example", None, b"Origin"),
        (CrossOrigin([]), LISTED, None, None),
    ],
)
def test_an_answer_says_the_origin_that_is_listed_and_nothing_of_the_engines(
    pages, origin, allowed_origin, vary
):
    messages: list[Any] = []

    async def keep(message: Any) -> None:
        messages.append(message)

    own = [(b"Access-Control-Allow-Origin", b"*"), (b"access-control-allow-credentials", b"true")]
    start = {"type": "http.response.start", "status": 200, "headers": [*own, (b"a", b"b")]}
    send = pages.send_with_headers(scope("POST", (b"origin", origin)), keep)
    asyncio.run(send(start))  # type: ignore[arg-type]
    headers = dict(messages[0]["headers"])
    assert headers.pop(b"a") == b"b"
    assert headers.get(b"access-control-allow-origin") == allowed_origin
    assert headers.get(b"vary") == vary and b"access-control-allow-credentials" not in headers
