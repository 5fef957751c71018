"""Whether vectors and orders of texts make sense: what a model that generates nothing is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lockstep.onhost.core import config
from lockstep.onhost.core.kind import Kind
from lockstep.onhost.engine import openai_api

# The first two are one text, the third says the same in other words, the last one something else.
TEXTS = (
    openai_api.QUESTION,
    openai_api.QUESTION,
    "Which city is the capital of France?",
    openai_api.BEST_FIRST[-1],
)
# What BF16 leaves of two equal texts that are computed at different places of a batch.
ALIKE = 0.999
OTHER = (
    "How does one make bread rise?",
    (
        "Bread rises when yeast makes gas in the dough.",
        "Bread is eaten in most countries of the world.",
        "The lawyer sent the contract to the other party on Monday.",
    ),
)


def embedding(target: config.Target, key: str | None, timeout: float) -> str:
    """What is wrong with the vectors of four texts, "" where they make sense.

    Raises as `openai_api.canary` does: for numbers that are not finite, and different lengths.
    """
    one, again, near, far = openai_api.embed(target, key, TEXTS, timeout)
    if any(len(set(vector)) == 1 < len(vector) for vector in (one, near, far)):
        return "a vector is one number again and again"
    same, close, apart = (_cosine(one, other) for other in (again, near, far))
    if same < ALIKE:
        return f"two equal texts have a cosine of {same:.4f}"
    if far == one or not close > apart:
        return (
            f"another text (cosine {apart:.4f}) is as near as the same in other words ({close:.4f})"
        )
    return ""


def rerank(target: config.Target, key: str | None, timeout: float) -> str:
    """What is wrong with the order of three texts, "" where it makes sense.

    Two questions, each with its texts from best to worst and from worst to best. Raises as
    `openai_api.canary` does: for scores that are not finite.
    """
    for question, texts in ((openai_api.QUESTION, openai_api.BEST_FIRST), OTHER):
        best, middle, worst = openai_api.rerank(target, key, question, texts, timeout)
        last = openai_api.rerank(target, key, question, texts[::-1], timeout)
        for scores in ((best, middle, worst), last[::-1]):
            if not scores[0] > scores[1] > scores[2]:
                said = ", ".join(f"{score:.4f}" for score in scores)
                return f"{question!r}: its texts from best to worst have the scores {said}"
    return ""


#: Kind of a model that generates nothing → the function that says what is wrong with it.
WRONG: dict[Kind, Callable[[config.Target, str | None, float], str]] = {
    "embedding": embedding,
    "rerank": rerank,
}


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    length = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / length if length else 0.0
