"""`lockstep.clients.check`: the shapes are whole, and what an answer means.

Before a real gateway: tests/unit/onhost/gateway/process/test_packages.py.
"""

import json
from typing import Any

import pytest
from local_server import Reply, as_json, serving

from lockstep.clients.check import GatewayAddress, Shape, ask_all
from lockstep.core.errors import LockstepError

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
STREAM, NO = {"stream": True}, {"message": "no"}
SSE = {"Content-Type": "text/event-stream"}


def shape(**more: Any) -> Shape:
    of_it = {"program": "p", "version": "1", "shape": "s", "source": "here", "date": "2026-11-28"}
    return Shape.model_validate({**of_it, "path": CHAT, "body": {}, **more})


def stream(*events: object) -> Reply:
    return Reply("".join(f"data: {json.dumps(event)}\n\n" for event in events).encode(), 200, SSE)


def test_what_an_answer_says_of_a_shape() -> None:
    for body, reply, expected_row in (
        ({}, as_json({"choices": []}), ("works", "")),
        ({}, as_json({"a": 1}, x_lockstep_evened="b,c"), ("evened", "b,c")),
        ({}, Reply(b"<html>"), ("refused", "no JSON object")),
        ({}, as_json({"error": {"message": "roles"}}, 400), ("refused", "400: roles")),
        ({}, as_json({"object": "error", "message": "flat"}, 500), ("refused", "500: flat")),
        ({}, as_json({"detail": "Not Found"}, 404), ("refused", "404: Not Found")),
        ({}, as_json({"error": {"message": "busy"}}, 429), ("unknown", "429: busy")),
        ({}, Reply(b"", 200, {"Content-Length": "9"}), ("unknown", "IncompleteRead")),
        (STREAM, stream({"choices": []}), ("works", "")),
        (STREAM, stream({"a": 1}, {"error": "mid"}), ("refused", "mid")),
        (STREAM, stream({"type": "response.failed", "response": {"error": NO}}), ("refused", "no")),
        (STREAM, stream({"error": NO | {"code": 503}}), ("unknown", "no")),
        (STREAM, stream({"type": "error", "error": NO | {"type": "api_error"}}), ("unknown", "no")),
        (STREAM, stream({"type": "error", "response": None}), ("refused", "null")),
        (STREAM, Reply(b": waiting\n\n"), ("refused", "without an event")),
    ):
        with serving({CHAT: reply}) as server:
            (row,) = ask_all(GatewayAddress(server.url), [shape(body=body)], pictures=False)
        outcome, text = expected_row
        row_text = ",".join(row.evened_shapes) + row.why
        assert row.outcome == outcome
        assert text in row_text and bool(text) == bool(row_text)


def test_after_two_without_an_answer_nobody_waits_and_auto_is_the_hot_model() -> None:
    with serving({CHAT: as_json({"error": {"message": "busy"}}, 503)}) as server:
        rows = list(ask_all(GatewayAddress(server.url), [shape()] * 4, pictures=False))
    assert [row.outcome for row in rows] == ["unknown"] * 2 + ["left out"] * 2
    with serving({"/v1/models": auto(kind="chat")}) as server:
        assert GatewayAddress(server.url).hot() == "qwen"
    # A file with more than a key is refused and not shown.
    for key in ("# anna\nlk-secret", "lk-secret \ufffd"):
        with pytest.raises(LockstepError, match="no single word") as error:
            GatewayAddress("http://127.0.0.1:9", key).hot()
        assert "secret" not in str(error.value)


def test_each_asks_whatever_is_hot_for_a_short_answer() -> None:
    every = [
        shape(),
        shape(body={"max_completion_tokens": 5}),
        shape(path=RESPONSES),
        shape(path="/v1/messages?beta=true", headers={"X-One": "1"}),
        shape(bom=True),
        shape(pictures=True),
    ]
    paths = (CHAT, RESPONSES, "/v1/messages")
    with serving(dict.fromkeys(paths, as_json({"a": 1}))) as server:
        rows = list(ask_all(GatewayAddress(server.url, "lk-1"), every, pictures=False))
    assert [row.outcome for row in rows] == ["works"] * 5 + ["left out"]
    bodies = [json.loads(request.body) for request in server.requests]
    limits = {"max_tokens": 16}, {"max_completion_tokens": 5}, {"max_output_tokens": 16}
    assert bodies == [{"model": "auto", **limit} for limit in (*limits, *2 * limits[:1])]
    assert server.requests[4].body.startswith(b"\xef\xbb\xbf")
    assert server.requests[3].headers["X-One"] == "1"
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer lk-1"}


def auto(**facts: object) -> Reply:
    return as_json({"data": [{"id": "auto", "lockstep": {"alias_of": "qwen", **facts}}]})


def test_where_nothing_can_be_told_one_sentence_says_why() -> None:
    for reply, message in (
        (as_json({"data": [{"id": "qwen", "lockstep": {}}]}), "no model is hot"),
        (auto(kind="embedding"), "qwen is hot and does not chat; found embedding"),
        (as_json({"error": "who"}, 401), "asks for a key"),
        (Reply(b"<html>"), "no answer of the gateway"),
        (Reply(b"[]"), "no answer of the gateway"),
    ):
        with serving({"/v1/models": reply, CHAT: as_json({"error": "no"}, 403)}) as server:
            with pytest.raises(LockstepError, match=message):
                GatewayAddress(server.url).hot()
            with pytest.raises(LockstepError, match="the gateway refuses the key"):
                GatewayAddress(server.url, "lk-2").ask(shape())
