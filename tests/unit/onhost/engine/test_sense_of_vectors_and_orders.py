"""Models that generate nothing: their test question, and answers that are right in form alone."""

import pytest
from a_model import model

from lockstep.onhost.engine import openai_api, sense_of_vectors_and_orders


def ask(fake, kind: str, answer: object) -> str:
    fake.chat = lambda _: (200, answer)
    asked_model = model(url=fake.url, served_name="served", kind=kind)
    return openai_api.ask_test_question(asked_model, "s3cret", 5)


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


@pytest.mark.parametrize("answer", [jina(-8.5, 0.25, 3.5), sglang(-8.5, 0.25, 3.5)])
def test_a_reranker_is_asked_for_the_order_of_three_texts(fake, answer):
    assert ask(fake, "rerank", answer).startswith("3 texts in the right order in ")
    assert fake.paths == ["/v1/rerank"]
    [request] = fake.requests
    assert request["query"] == "What is the capital of France?"
    # An engine that leaves them as they came has not ranked them.
    assert request["documents"] == list(openai_api.BEST_FIRST)[::-1]


@pytest.mark.parametrize(
    ("kind", "answer", "reason"),
    [
        ("embedding", vectors([0.5, float("nan")], [1, 0]), "not finite"),
        # As llama.cpp writes a number that is not finite.
        ("embedding", vectors([0.5, None], [1, 0]), "without vectors"),
        ("embedding", vectors([0.5, 1, 2], [1, 0]), r"vectors of \[3, 2\] numbers"),
        ("embedding", vectors([], []), r"vectors of \[0, 0\] numbers"),
        ("embedding", vectors([0.5, 1]), r"2 texts gave vectors of \[2\] numbers"),
        ("rerank", jina(0.5, 0.5, 0.5), "wrong order"),
        ("rerank", jina(0.1, float("nan"), 0.9), "not finite"),
        ("rerank", jina(0.1, None, 0.9), "without scores"),
        ("rerank", jina(0.1, 0.9), "without scores"),
        ("rerank", {"results": "none"}, "without scores"),
    ],
)
def test_vectors_and_orders_that_are_none_are_no_answer(fake, kind, answer, reason):
    with pytest.raises(openai_api.Nonsense, match=reason):
        ask(fake, kind, answer)


def wrong(fake, kind: str, answer) -> str:
    """The fault that the longer questions find in answers that are right in form."""
    fake.chat = answer if callable(answer) else lambda _: (200, answer)
    return sense_of_vectors_and_orders.WRONG[kind](model(url=fake.url, kind=kind), None, 5)


ONE, NEAR, FAR = [1.0, 0.0, 0.1], [0.9, 0.3, 0.1], [-0.2, 0.8, 0.5]


def test_near_texts_have_near_vectors(fake):
    assert wrong(fake, "embedding", vectors(ONE, [1.0, 0.001, 0.1], NEAR, FAR)) == ""
    [request] = fake.requests
    first, second, *other_texts = request["input"]
    assert first == second and len({first, *other_texts}) == 3


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((ONE, ONE, FAR, NEAR), "is as near as"),
        ((ONE, FAR, NEAR, FAR), "two equal texts have a cosine of"),
        (([0.5] * 3, [0.5] * 3, [0.5] * 3, [0.1] * 3), "one number again and again"),
        (([0.0] * 3, [0.0] * 3, NEAR, FAR), "one number again and again"),
    ],
)
def test_vectors_without_sense_are_found(fake, parts, reason):
    assert reason in wrong(fake, "embedding", vectors(*parts))


def by(score):
    """The answers of a reranker whose score gets a text and its place."""

    def answer(request: dict) -> tuple[int, object]:
        return 200, jina(*(score(text, place) for place, text in enumerate(request["documents"])))

    return answer


def quality(text: str) -> float:
    texts = [*openai_api.BEST_FIRST, *sense_of_vectors_and_orders.OTHER_QUESTION[1]]
    return -float(texts.index(text) % 3)


def test_the_right_order_is_right_wherever_the_texts_stand(fake):
    assert wrong(fake, "rerank", by(lambda text, place: quality(text))) == ""
    assert len({request["query"] for request in fake.requests}) == 2
    documents = [request["documents"] for request in fake.requests]
    assert [texts[::-1] for texts in documents[::2]] == documents[1::2]


@pytest.mark.parametrize(
    "score",
    [
        lambda text, place: -place,
        lambda text, place: place,
        lambda text, place: 0.5,
        lambda text, place: -quality(text),
        # Right for one question only.
        lambda text, place: quality(text) * (1 if "bread" not in text.lower() else -1),
    ],
)
def test_an_order_without_sense_is_found(fake, score):
    assert "from best to worst have the scores" in wrong(fake, "rerank", by(score))
