"""A client of an engine's OpenAI-compatible HTTP API: does it answer, does it generate."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.core import config, errors, http_client

PROMPT = "Say hello."
# Texts that any reranker can tell apart: the answer, the same subject, and neither.
QUESTION = "What is the capital of France?"
BEST_FIRST = (
    "The capital of France is Paris.",
    "France is a country in Europe that is known for its cheese.",
    "A bicycle chain should be oiled twice a year.",
)


class NotReady(Exception):
    """The error that the engine does not serve yet; `str()` is its answer instead.

    `status`: that of HTTP, 0 without an answer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class RequestRefusal(Exception):
    """The engine's refusal of a request that can never work (HTTP 4xx)."""


class Nonsense(NotReady):
    """An answer that is no vector, or no order of the texts."""


@dataclass(frozen=True)
class GeneratedText:
    """One answer: the number of tokens, the seconds, and the text."""

    tokens: int
    seconds: float
    text: str

    @property
    def rate(self) -> float:
        """Tokens per second, prompt processing included."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


def api_key(model: config.Model) -> str | None:
    """Return the engine's API key from its file; raise Problem if it cannot be read."""
    if model.api_key_file is None:
        return None
    path = Path(model.api_key_file)
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise errors.Problem(f"API key of {model.name}: {path}: {error.strerror}") from error


def check_health(model: config.Model, timeout: float = 5.0) -> None:
    """Check that GET /health answers 200; raise NotReady if not.

    vLLM's port refuses connections while it loads, SGLang answers 503. A green answer does not mean
    that the engine generates: `ask_test_question` checks that.
    """
    _ask_engine(model, "/health", timeout)


def counters(
    model: config.Model, key: str | None, timeout: float = 10.0
) -> engines.Counters | None:
    """Return the engine's counters (GET /metrics), or None if it publishes none.

    Raises NotReady if nothing answers.
    """
    try:
        page = _ask_engine(model, "/metrics", timeout, key)
    except RequestRefusal:
        return None
    except NotReady as answer:
        if answer.status in (404, 501):
            return None
        raise
    return engines.counters(page.decode("utf-8", "replace"))


def ask_test_question(
    model: config.Model, key: str | None, timeout: float, tokens: int = 16
) -> str:
    """Send the smallest request that shows that the engine serves, and describe the answer.

    A chat model generates up to `tokens` tokens. An embedding model makes two vectors of equal
    length from finite numbers. A reranker puts three texts, which come in the wrong order, into the
    right one.

    Returns:
        "16 tokens in 0.3 s (57.0 tok/s)", "2 vectors of 1024 numbers in 0.1 s".

    Raises:
        NotReady: No connection, 5xx, time-out, or an answer without a token.
        Nonsense: An answer without vectors or without the right order.
        RequestRefusal: 4xx, as for a wrong model name or a wrong key.
    """
    began = time.monotonic()
    if model.kind == "embedding":
        vectors = embed(model, key, (QUESTION, BEST_FIRST[-1]), timeout)
        outcome = f"{len(vectors)} vectors of {len(vectors[0])} numbers"
    elif model.kind == "rerank":
        scores = rerank_scores(model, key, QUESTION, BEST_FIRST[::-1], timeout)
        if not scores[0] < scores[1] < scores[2]:
            raise Nonsense(f"three texts came in the wrong order: their scores are {scores}")
        outcome = "3 texts in the right order"
    else:
        answer = generate(model, key, PROMPT, timeout, {"max_tokens": tokens})
        if tokens == 1:
            return f"a token in {answer.seconds:.1f} s"
        return f"{answer.tokens} tokens in {answer.seconds:.1f} s ({answer.rate:.1f} tok/s)"
    return f"{outcome} in {time.monotonic() - began:.1f} s"


def embed(
    model: config.Model, key: str | None, texts: Sequence[str], timeout: float
) -> list[list[float]]:
    """Return the vectors of some texts, in their order: finite numbers, as many for each text.

    Raises the same errors as `ask_test_question`.
    """
    answer = _ask_engine(model, "/v1/embeddings", timeout, key, {"input": list(texts)})
    try:
        parts = sorted(json.loads(answer)["data"], key=lambda part: part["index"])
        vectors = [[float(number) for number in part["embedding"]] for part in parts]
    except (ValueError, LookupError, TypeError) as fault:
        raise Nonsense(f"the engine answered without vectors: {answer[:200]!r}") from fault
    lengths = [len(vector) for vector in vectors]
    if len(vectors) != len(texts) or len(set(lengths)) != 1 or not lengths[0]:
        raise Nonsense(f"{len(texts)} texts gave vectors of {lengths} numbers")
    if not all(math.isfinite(number) for vector in vectors for number in vector):
        raise Nonsense("a vector holds a number that is not finite")
    return vectors


def rerank_scores(
    model: config.Model, key: str | None, query: str, texts: Sequence[str], timeout: float
) -> list[float]:
    """Return a score for each text as an answer to a query, in the order of texts; more is better.

    Raises the same errors as `ask_test_question`.
    """
    body = {"query": query, "documents": list(texts)}
    answer = _ask_engine(model, "/v1/rerank", timeout, key, body)
    try:
        reply = json.loads(answer)
        # vLLM and llama.cpp answer as Jina does, SGLang with a list (serving_rerank.py of 0.5.23).
        parts = reply["results"] if isinstance(reply, dict) else reply
        scores = {
            part["index"]: float(part.get("relevance_score", part.get("score"))) for part in parts
        }
        scores_in_order = [scores[index] for index in range(len(texts))]
    except (ValueError, LookupError, TypeError, AttributeError) as fault:
        raise Nonsense(f"the engine answered without scores: {answer[:200]!r}") from fault
    if not all(math.isfinite(score) for score in scores_in_order):
        raise Nonsense(f"a score is not finite: {scores_in_order}")
    return scores_in_order


def streaming_fields(engine: engines.Engine | None) -> dict[str, Any]:
    """Return the keys of a request whose tokens the engine streams as generated, and counts."""
    usage_options = {"include_usage": True, "continuous_usage_stats": True}
    return {"stream": True, "stream_options": usage_options, **(engine.each_step if engine else {})}


def generate(
    model: config.Model, key: str | None, prompt: str, timeout: float, more: dict[str, Any]
) -> GeneratedText:
    """Generate one answer to a prompt at temperature 0, with `more` in the request's body.

    With the keys of `stream_keys` the answer comes as a stream, and this still waits for its last
    byte. Raises the same errors as `ask_test_question`.
    """
    start_time = time.monotonic()
    answer = raw_chat_answer(model, key, prompt, timeout, more)
    seconds = time.monotonic() - start_time
    # A reasoning model may spend all its tokens on thinking. vLLM calls that `reasoning`, SGLang
    # and older vLLM `reasoning_content`.
    keys = ("content", "reasoning", "reasoning_content")
    count, text = 0, ""
    try:
        for part in _parts(answer):
            count = int((part.get("usage") or {}).get("completion_tokens", count))
            for choice in part["choices"]:
                message = choice.get("message") or choice.get("delta") or {}
                text += "".join(str(message.get(message_key) or "") for message_key in keys)
    except (ValueError, LookupError, TypeError, AttributeError):
        count = 0
    if count < 1 or not text:
        raise NotReady(f"the engine answered without a token: {answer[:200]!r}")
    return GeneratedText(count, seconds, text)


def raw_chat_answer(
    model: config.Model, key: str | None, prompt: str, timeout: float, more: dict[str, Any]
) -> bytes:
    """Return the whole answer to a prompt at temperature 0, as it came; see `generate`."""
    messages = [{"role": "user", "content": prompt}]
    body = {"messages": messages, "temperature": 0, "stream": False, **more}
    return _ask_engine(model, "/v1/chat/completions", timeout, key, body)


def _parts(answer: bytes) -> list[Any]:
    """Return the events of a stream, or the one answer that came without a stream."""
    if not answer.startswith(b"data:"):
        return [json.loads(answer)]
    lines = (line.removeprefix(b"data:").strip() for line in answer.splitlines())
    return [json.loads(line) for line in lines if line and line != b"[DONE]"]


def _ask_engine(
    model: config.Model,
    path: str,
    timeout: float,
    key: str | None = None,
    body: dict[str, Any] | None = None,
) -> bytes:
    """Return the answer to a GET, or to a POST if there is a body."""
    method, data, headers = "GET", None, {"Authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        method, headers["Content-Type"] = "POST", "application/json"
        data = json.dumps({"model": model.served_name, **body}).encode()
    url = model.url.rstrip("/").removesuffix("/v1") + path
    try:
        with http_client.open_answer(url, timeout, method, data, headers) as response:
            if 200 <= response.status < 300:
                return response.read()
            code, detail = response.status, response.read(400).decode("utf-8", "replace").strip()
    except http_client.FAULTS as error:
        raise NotReady(errors.why(error)) from error
    message = f"HTTP {code} {detail}".strip()
    is_refused = 400 <= code < 500 and code not in (404, 408, 425, 429)
    if is_refused or (code == 404 and "model" in detail):
        raise RequestRefusal(message)
    raise NotReady(message, code)
