"""A token counts as come by the engine's own count, or by text where the engine has none."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import broken_engine
from local_server import Reply, serving

from lockstep.bench.client import Client, Clock
from lockstep.bench.sample import Ask, BenchSample
from lockstep.onhost.engines import ENGINES


def event(text: str, tokens: int | None, **more: Any) -> str:
    """One event of a stream; `tokens` are those so far, None where the engine does not say."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **more}
    usage = {} if tokens is None else {"usage": {"prompt_tokens": 3, "completion_tokens": tokens}}
    return f"data: {json.dumps({'model': 'm', 'choices': [choice], **usage})}\n\n"


def total(tokens: int) -> str:
    usage = {"prompt_tokens": 3, "completion_tokens": tokens}
    return f"data: {json.dumps({'model': 'm', 'choices': [], 'usage': usage})}\n\n"


def sample(*events: str) -> BenchSample:
    """The client's sample of a stream with an event a second, the first after half a second."""
    body = "".join([*events, "data: [DONE]\n\n"]).encode()
    # An event is two lines, and each is given its time.
    ticks = count()
    ask = Ask("x", ({"role": "user", "content": "?"},), 8)
    with serving({"/v1/chat/completions": Reply(body)}) as server:
        measurement = Client(server.url, "m", clock=Clock(now=lambda: next(ticks) / 2)).complete(
            ask
        )
    assert measurement.good, measurement
    return measurement


def test_tokens_whose_text_is_held_back_have_come() -> None:
    measurement = sample(
        event("", 0),
        event("", 1),
        event("", 2),
        event("Grüße", 3),
        event("", 3, finish_reason="length"),
        total(3),
    )
    assert (measurement.first_s, measurement.first_tokens, measurement.last_s) == (1.5, 1, 3.5)
    assert (measurement.tokens, measurement.pieces, measurement.decode_rate) == (3, 1, 1.0)


def test_tokens_that_come_together_are_not_counted_as_generated_afterwards() -> None:
    measurement = sample(
        event("three at once", 3),
        event(" and two", 5),
        event("", 5, finish_reason="stop"),
        total(5),
    )
    assert (measurement.first_s, measurement.first_tokens, measurement.last_s) == (0.5, 3, 1.5)
    assert measurement.decode_rate == 2.0


def test_a_lone_token_asks_for_no_ids() -> None:
    """With them would come those of a long prompt, before the first token."""
    engine = broken_engine.Engine()
    with broken_engine.serving(engine) as url:
        client = Client(url, broken_engine.MODEL)
        client.engine = ENGINES["vllm"]
        for tokens in (1, 2):
            client.complete(Ask("x", ({"role": "user", "content": "?"},), tokens))
    assert [question.get("return_token_ids") for question in engine.request_bodies] == [None, True]


def test_text_counts_where_the_engine_does_not_count_along() -> None:
    measurement = sample(
        event("", None),
        event("a", None),
        event(" b", None),
        event("", None, finish_reason="stop"),
        total(2),
    )
    assert (measurement.first_s, measurement.first_tokens, measurement.last_s) == (1.5, 1, 2.5)
    assert (measurement.tokens, measurement.decode_rate) == (2, 1.0)


def test_an_answer_in_one_piece_has_no_rate_after_its_first_token() -> None:
    measurement = sample(event("all of it", 4, finish_reason="stop"), total(4))
    assert (measurement.tokens, measurement.first_tokens, measurement.decode_rate) == (4, 4, None)
