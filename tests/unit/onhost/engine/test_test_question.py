"""The test question by kind: a token, vectors of finite numbers, or three texts in the right
order."""

from __future__ import annotations

import pytest
from a_model import model
from onhost_fakes import FakeEngine

from lockstep.onhost.engine import openai_api


def ask(fake: FakeEngine, kind: str, answer: object, code: int = 200) -> str:
    fake.chat = lambda _: (code, answer)
    model_model = model(url=fake.url, served_name="served", kind=kind)
    return openai_api.ask_test_question(model_model, "s3cret", 5)


def vectors(*parts: object) -> dict:
    """The answer of all three engines, the last text first."""
    data = [{"object": "embedding", "index": i, "embedding": part} for i, part in enumerate(parts)]
    return {"object": "list", "model": "served", "data": data[::-1]}


def jina(*scores: object) -> dict:
    """The answer of vLLM and llama.cpp, the best text first."""
    results = [{"index": i, "relevance_score": score} for i, score in enumerate(scores)]
    return {"model": "served", "results": results[::-1]}


def sglang(*scores: object) -> list:
    return [{"index": i, "score": score, "document": "x"} for i, score in enumerate(scores)][::-1]


def test_an_embedding_model_is_asked_for_the_vectors_of_two_texts(fake):
    assert ask(fake, "embedding", vectors([0.5, -1, 2], [1, 0, 0])).startswith(
        "2 vectors of 3 numbers in "
    )
    assert fake.paths == ["/v1/embeddings"]
    assert fake.keys == ["Bearer s3cret"]
    [request] = fake.requests
    assert request["model"] == "served"
    assert len(set(request["input"])) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (vectors([0.5, float("nan")], [1, 0]), "not finite"),
        (vectors([0.5, float("inf")], [1, 0]), "not finite"),
        # As llama.cpp writes a number that is not finite.
        (vectors([0.5, None], [1, 0]), "without vectors"),
        (vectors([0.5, 1, 2], [1, 0]), r"vectors of \[3, 2\] numbers"),
        (vectors([], []), r"vectors of \[0, 0\] numbers"),
        (vectors([0.5, 1]), r"2 texts gave vectors of \[2\] numbers"),
        (vectors(), r"vectors of \[\] numbers"),
        (FakeEngine.answer("hello", 2), "without vectors"),
    ],
)
def test_vectors_that_are_none_are_no_answer(fake, answer, reason):
    with pytest.raises(openai_api.Nonsense, match=reason):
        ask(fake, "embedding", answer)


@pytest.mark.parametrize("answer", [jina(-8.5, 0.25, 3.5), sglang(-8.5, 0.25, 3.5)])
def test_a_reranker_is_asked_for_the_order_of_three_texts(fake, answer):
    assert ask(fake, "rerank", answer).startswith("3 texts in the right order in ")
    assert fake.paths == ["/v1/rerank"]
    [request] = fake.requests
    assert request["query"] == "What is the capital of France?"
    # An engine that leaves them as they came has not ranked them.
    assert request["documents"] == list(openai_api.BEST_FIRST)[::-1]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (jina(3.5, 0.25, -8.5), "wrong order"),
        (jina(0.5, 0.5, 0.5), "wrong order"),
        (jina(0.1, float("nan"), 0.9), "not finite"),
        (jina(0.1, None, 0.9), "without scores"),
        (jina(0.1, 0.9), "without scores"),
        (sglang(0.9, 0.5, 0.1), "wrong order"),
        ({"results": "none"}, "without scores"),
    ],
)
def test_an_order_that_is_none_is_no_answer(fake, answer, reason):
    with pytest.raises(openai_api.Nonsense, match=reason):
        ask(fake, "rerank", answer)


@pytest.mark.parametrize("kind", ["embedding", "rerank"])
def test_a_refusal_is_a_refusal_for_every_kind(fake, kind):
    with pytest.raises(openai_api.RequestRefusal, match="HTTP 401"):
        ask(fake, kind, {"error": "Unauthorized"}, 401)
