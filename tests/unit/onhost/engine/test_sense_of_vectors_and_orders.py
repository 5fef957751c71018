"""Vectors and orders of texts that are formally right and make no sense are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from a_model import model
from onhost_fakes import FakeEngine

from lockstep.onhost.engine import openai_api, sense_of_vectors_and_orders


def wrong(fake: FakeEngine, kind: str) -> str:
    return sense_of_vectors_and_orders.WRONG[kind](model(url=fake.url, kind=kind), None, 5)


def embeds(fake: FakeEngine, *vectors: Sequence[float]) -> None:
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    fake.chat = lambda _: (200, {"data": data})


ONE, NEAR, FAR = [1.0, 0.0, 0.1], [0.9, 0.3, 0.1], [-0.2, 0.8, 0.5]


def test_near_texts_have_near_vectors(fake):
    embeds(fake, ONE, [1.0, 0.001, 0.1], NEAR, FAR)
    assert wrong(fake, "embedding") == ""
    [request] = fake.requests
    first, second, *other_texts = request["input"]
    assert first == second
    assert len({first, *other_texts}) == 3


@pytest.mark.parametrize(
    ("vectors", "reason"),
    [
        ((ONE, ONE, FAR, NEAR), "is as near as"),
        ((ONE, ONE, NEAR, ONE), "is as near as"),
        ((ONE, ONE, ONE, ONE), "is as near as"),
        ((ONE, FAR, NEAR, FAR), "two equal texts have a cosine of"),
        (([0.5] * 3, [0.5] * 3, [0.5] * 3, [0.1] * 3), "one number again and again"),
        (([0.0] * 3, [0.0] * 3, NEAR, FAR), "one number again and again"),
    ],
)
def test_vectors_without_sense_are_found(fake, vectors, reason):
    embeds(fake, *vectors)
    assert reason in wrong(fake, "embedding")


def test_what_is_no_number_or_of_another_length_is_no_answer(fake):
    embeds(fake, ONE, ONE, [float("nan"), 0, 1], FAR)
    with pytest.raises(openai_api.NotReady, match="not finite"):
        wrong(fake, "embedding")
    embeds(fake, ONE, ONE, NEAR, [*FAR, 1.0])
    with pytest.raises(openai_api.NotReady, match=r"vectors of \[3, 3, 3, 4\] numbers"):
        wrong(fake, "embedding")


def ranks(fake: FakeEngine, score: Callable[[str, int], float]) -> None:
    """`score` gets a text and its place."""

    def answer(request: dict) -> tuple[int, object]:
        scores = [
            {"index": place, "relevance_score": score(text, place)}
            for place, text in enumerate(request["documents"])
        ]
        return 200, {"results": scores}

    fake.chat = answer


def by_quality(text: str) -> float:
    texts = [*openai_api.BEST_FIRST, *sense_of_vectors_and_orders.OTHER_QUESTION[1]]
    return -float(texts.index(text) % 3)


def test_the_right_order_is_right_wherever_the_texts_stand(fake):
    ranks(fake, lambda text, place: by_quality(text))
    assert wrong(fake, "rerank") == ""
    assert len({request["query"] for request in fake.requests}) == 2
    assert [request["documents"][::-1] for request in fake.requests[::2]] == [
        request["documents"] for request in fake.requests[1::2]
    ]


@pytest.mark.parametrize(
    "score",
    [
        lambda text, place: -place,
        lambda text, place: place,
        lambda text, place: 0.5,
        lambda text, place: -by_quality(text),
        # Right for one question only.
        lambda text, place: by_quality(text) * (1 if "bread" not in text.lower() else -1),
    ],
)
def test_an_order_without_sense_is_found(fake, score):
    ranks(fake, score)
    assert "from best to worst have the scores" in wrong(fake, "rerank")
