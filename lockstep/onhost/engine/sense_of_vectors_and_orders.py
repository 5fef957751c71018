"""Checks that vectors and orders of texts make sense, for models that do not generate text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lockstep.onhost.core import config
from lockstep.onhost.core.request_kinds_and_refused_shapes import Kind
from lockstep.onhost.engine import openai_api

# The first two are the same text, the third says the same in other words, the last is unrelated.
TEXTS = (
    openai_api.QUESTION,
    openai_api.QUESTION,
    "Which city is the capital of France?",
    openai_api.BEST_FIRST[-1],
)
# The cosine that BF16 leaves of two equal texts that are computed at different places of a batch.
ALIKE = 0.999
OTHER_QUESTION = (
    "How does one make bread rise?",
    (
        "Bread rises when yeast makes gas in the dough.",
        "Bread is eaten in most countries of the world.",
        "The lawyer sent the contract to the other party on Monday.",
    ),
)


def embedding_fault(model: config.Model, key: str | None, timeout: float) -> str:
    """Return the fault in the vectors of four texts, "" if they make sense.

    Raises the same errors as `openai_api.ask_test_question`, for numbers that are not finite and
    for different lengths.
    """
    first_vector, again, near, far = openai_api.embed(model, key, TEXTS, timeout)
    if any(len(set(vector)) == 1 < len(vector) for vector in (first_vector, near, far)):
        return "a vector is one number again and again"
    equal_cosine, close, apart = (
        _cosine(first_vector, compared_vector) for compared_vector in (again, near, far)
    )
    if equal_cosine < ALIKE:
        return f"two equal texts have a cosine of {equal_cosine:.4f}"
    if far == first_vector or not close > apart:
        return (
            f"another text (cosine {apart:.4f}) is as near as the same in other words ({close:.4f})"
        )
    return ""


def order_fault(model: config.Model, key: str | None, timeout: float) -> str:
    """Return the fault in the order of three texts, "" if it makes sense.

    Each of two questions is asked with its texts from best to worst and from worst to best. Raises
    the same errors as `openai_api.ask_test_question`, for scores that are not finite.
    """
    for question, texts in ((openai_api.QUESTION, openai_api.BEST_FIRST), OTHER_QUESTION):
        best, middle, worst = openai_api.rerank_scores(model, key, question, texts, timeout)
        last = openai_api.rerank_scores(model, key, question, texts[::-1], timeout)
        for scores in ((best, middle, worst), last[::-1]):
            if not scores[0] > scores[1] > scores[2]:
                scores_text = ", ".join(f"{score:.4f}" for score in scores)
                return f"{question!r}: its texts from best to worst have the scores {scores_text}"
    return ""


#: Kind of a model that does not generate text → the function that returns its fault.
WRONG: dict[Kind, Callable[[config.Model, str | None, float], str]] = {
    "embedding": embedding_fault,
    "rerank": order_fault,
}


def _cosine(first_vector: Sequence[float], second_vector: Sequence[float]) -> float:
    length = math.hypot(*first_vector) * math.hypot(*second_vector)
    return (
        sum(a * b for a, b in zip(first_vector, second_vector, strict=True)) / length
        if length
        else 0.0
    )
