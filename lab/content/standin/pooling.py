"""Vectors of texts and orders of texts, by the words that they have in common."""

from __future__ import annotations

import math
import re
import time
import zlib
from collections.abc import Callable
from typing import Any

from .arguments import Serving
from .knobs import Knobs
from .metrics import Counters
from .refusals import StandinRefusal

Json = dict[str, Any]

EMBEDDINGS, RERANK = "/v1/embeddings", "/v1/rerank"
WIDTH = 64
#: Beginnings of words are compared, so that "rise" and "rises" are one.
_STEM = 4


def is_served(path: str, serving: Serving) -> bool:
    """Tell whether the real engine has that path for this model.

    vLLM 0.32.0 ranks by vectors too, and makes none with a class for classification (ran there).
    """
    if serving.pooling == "classify":
        return path == RERANK
    return bool(serving.pooling) and path in (EMBEDDINGS, RERANK)


def answer(
    path: str,
    request: Json,
    serving: Serving,
    knobs: Knobs,
    counters: Counters,
    is_gone: Callable[[], bool],
) -> Json | list[Json] | None:
    """The answer to a request body; None when the client has gone.

    Raises:
        Refused: the real engine refuses the request.
    """
    model = request.get("model")
    if serving.engine == "vllm" and model is not None and model not in serving.names:
        raise StandinRefusal(404, f"The model `{model}` does not exist.", "NotFoundError")
    if path == EMBEDDINGS:
        request_input = request["input"]
        texts = (
            [request_input]
            if isinstance(request_input, str)
            else [str(text) for text in request_input]
        )
    else:
        texts = [f"{request['query']} {text}" for text in request["documents"]]
    tokens = sum(len(text.split()) for text in texts)
    counters.add(running=1, prompt_tokens=tokens)
    reason = "abort"
    try:
        while knobs.is_wedged and not is_gone():
            time.sleep(0.05)
        if is_gone():
            return None
        reason = "stop"
    finally:
        counters.add(running=-1)
        counters.finish(reason)
    if path == EMBEDDINGS:
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": _spoil_vector(_vector(text), index, knobs),
            }
            for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "model": model, "data": data, "usage": usage}
    return _ranking(request, serving, knobs)


def _stems(text: str) -> list[str]:
    return [word[:_STEM] for word in re.findall(r"\w+", text.lower())]


def _vector(text: str) -> list[float]:
    """A vector of length 1: how often each beginning of a word occurs."""
    counts = [0.0] * WIDTH
    for stem in _stems(text):
        counts[zlib.crc32(stem.encode()) % WIDTH] += 1
    length = math.hypot(*counts) or 1.0
    return [count / length for count in counts]


def _spoil_vector(vector: list[float], index: int, knobs: Knobs) -> list[float | None]:
    """Spoil a vector as the knob says. Both engines write a number that is not finite as null."""
    if knobs.broken_vector == "nan":
        return [None, *vector[1:]]
    if knobs.broken_vector == "length":
        return list(vector[index % 2 :])
    if knobs.broken_vector == "constant":
        return [0.125] * WIDTH
    if knobs.broken_vector == "shifted":
        return [*vector[index:], *vector[:index]]
    return list(vector)


def _ranking(request: Json, serving: Serving, knobs: Knobs) -> Json | list[Json]:
    query = set(_stems(str(request["query"])))
    ranked_documents = []
    for index, text in enumerate(request["documents"]):
        stems = _stems(str(text))
        score = len(query & set(stems)) / max(1, len(stems))
        ranked_documents.append((-score if knobs.wrong_order else score, index, text))
    ranked_documents.sort(reverse=True)
    if serving.engine == "sglang":
        return [
            {"score": score, "document": text, "index": index}
            for score, index, text in ranked_documents
        ]
    results = [
        {"index": index, "document": {"text": text}, "relevance_score": score}
        for score, index, text in ranked_documents
    ]
    return {"id": "rerank-standin", "model": request.get("model"), "results": results}
