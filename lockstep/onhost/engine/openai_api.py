"""Client of an engine's OpenAI-compatible HTTP API: does it answer, does it generate."""

from __future__ import annotations

import http.client
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.core import config, errors

PROMPT = "Say hello."
# What any reranker tells apart: the answer, the same subject, and neither.
QUESTION = "What is the capital of France?"
BEST_FIRST = (
    "The capital of France is Paris.",
    "France is a country in Europe that is known for its cheese.",
    "A bicycle chain should be oiled twice a year.",
)


class NotReady(Exception):
    """The engine does not serve yet; `str()` says what it answered instead."""


class Refused(Exception):
    """The engine answered that this request can never work (HTTP 4xx)."""


class Nonsense(NotReady):
    """The engine answered, and what came is no vector, or no order of the texts."""


@dataclass(frozen=True)
class Generated:
    """One answer: how many tokens, in how many seconds, and the text."""

    tokens: int
    seconds: float
    text: str

    @property
    def rate(self) -> float:
        """Tokens per second, prompt processing included."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


def api_key(target: config.Target) -> str | None:
    """The key that the engine asks for, from its file; Problem when it cannot be read."""
    if target.api_key_file is None:
        return None
    path = Path(target.api_key_file)
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise errors.Problem(f"API key of {target.name}: {path}: {error.strerror}") from error


def check_health(target: config.Target, timeout: float = 5.0) -> None:
    """GET /health. NotReady unless it answers 200.

    vLLM's port refuses connections while it loads, SGLang answers 503. A green answer does not
    mean that the engine generates: that is what `canary` is for.
    """
    _asked(target, "/health", timeout)


def counters(
    target: config.Target, key: str | None, timeout: float = 10.0
) -> engines.Counters | None:
    """What it counts about itself (GET /metrics), None where it does not say.

    NotReady when nothing answers.
    """
    try:
        page = _asked(target, "/metrics", timeout, key)
    except Refused:
        return None
    except NotReady as answer:
        if str(answer).startswith(("HTTP 404", "HTTP 501")):
            return None
        raise
    return engines.counters(page.decode("utf-8", "replace"))


def canary(target: config.Target, key: str | None, timeout: float, tokens: int = 16) -> str:
    """Ask for the least that shows that the engine serves, and say what came.

    A chat model generates up to `tokens` tokens. One of embeddings makes two vectors of one length
    from finite numbers. A reranker brings three texts, which come in the wrong order, into the
    right one.

    Returns:
        "16 tokens in 0.3 s (57.0 tok/s)", "2 vectors of 1024 numbers in 0.1 s".

    Raises:
        NotReady: no connection, 5xx, time-out, or an answer without a token.
        Nonsense: an answer without the others.
        Refused: 4xx, as for a wrong model name or a wrong key.
    """
    began = time.monotonic()
    if target.kind == "embedding":
        vectors = embed(target, key, (QUESTION, BEST_FIRST[-1]), timeout)
        what = f"{len(vectors)} vectors of {len(vectors[0])} numbers"
    elif target.kind == "rerank":
        scores = rerank(target, key, QUESTION, BEST_FIRST[::-1], timeout)
        if not scores[0] < scores[1] < scores[2]:
            raise Nonsense(f"three texts came in the wrong order: their scores are {scores}")
        what = "3 texts in the right order"
    else:
        made = generate(target, key, PROMPT, timeout, {"max_tokens": tokens})
        if tokens == 1:
            return f"a token in {made.seconds:.1f} s"
        return f"{made.tokens} tokens in {made.seconds:.1f} s ({made.rate:.1f} tok/s)"
    return f"{what} in {time.monotonic() - began:.1f} s"


def embed(
    target: config.Target, key: str | None, texts: Sequence[str], timeout: float
) -> list[list[float]]:
    """The vectors of some texts, in their order: finite numbers, and as many for each text.

    Raises as `canary` does.
    """
    answer = _asked(target, "/v1/embeddings", timeout, key, {"input": list(texts)})
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


def rerank(
    target: config.Target, key: str | None, query: str, texts: Sequence[str], timeout: float
) -> list[float]:
    """How well each text answers a query, in the order of the texts; more is better.

    Raises as `canary` does.
    """
    body = {"query": query, "documents": list(texts)}
    answer = _asked(target, "/v1/rerank", timeout, key, body)
    try:
        found = json.loads(answer)
        # vLLM and llama.cpp answer as Jina does, SGLang with a list (serving_rerank.py of 0.5.23).
        parts = found["results"] if isinstance(found, dict) else found
        scores = {
            part["index"]: float(part.get("relevance_score", part.get("score"))) for part in parts
        }
        ordered = [scores[index] for index in range(len(texts))]
    except (ValueError, LookupError, TypeError, AttributeError) as fault:
        raise Nonsense(f"the engine answered without scores: {answer[:200]!r}") from fault
    if not all(math.isfinite(score) for score in ordered):
        raise Nonsense(f"a score is not finite: {ordered}")
    return ordered


def streamed(engine: engines.Engine | None) -> dict[str, Any]:
    """Keys of a request whose tokens are to come as they are generated, counted by the engine."""
    counted = {"include_usage": True, "continuous_usage_stats": True}
    return {"stream": True, "stream_options": counted, **(engine.each_step if engine else {})}


def generate(
    target: config.Target, key: str | None, prompt: str, timeout: float, more: dict[str, Any]
) -> Generated:
    """One answer to a prompt at temperature 0, with `more` in the request's body.

    With the keys of `streamed` it comes as a stream, and ends with its last byte all the same.
    Raises as `canary` does.
    """
    started = time.monotonic()
    answer = chat(target, key, prompt, timeout, more)
    seconds = time.monotonic() - started
    # A reasoning model may spend all its tokens on thinking; vLLM calls that `reasoning`,
    # SGLang and older vLLM `reasoning_content`.
    keys = ("content", "reasoning", "reasoning_content")
    count, text = 0, ""
    try:
        for part in _parts(answer):
            count = int((part.get("usage") or {}).get("completion_tokens", count))
            for choice in part["choices"]:
                message = choice.get("message") or choice.get("delta") or {}
                text += "".join(str(message.get(each) or "") for each in keys)
    except (ValueError, LookupError, TypeError, AttributeError):
        count = 0
    if count < 1 or not text:
        raise NotReady(f"the engine answered without a token: {answer[:200]!r}")
    return Generated(count, seconds, text)


def chat(
    target: config.Target, key: str | None, prompt: str, timeout: float, more: dict[str, Any]
) -> bytes:
    """The whole answer to a prompt at temperature 0, as it came; see `generate`."""
    messages = [{"role": "user", "content": prompt}]
    body = {"messages": messages, "temperature": 0, "stream": False, **more}
    return _asked(target, "/v1/chat/completions", timeout, key, body)


def _parts(answer: bytes) -> list[Any]:
    """The events of a stream, or the one answer without one."""
    if not answer.startswith(b"data:"):
        return [json.loads(answer)]
    lines = (line.removeprefix(b"data:").strip() for line in answer.splitlines())
    return [json.loads(line) for line in lines if line and line != b"[DONE]"]


def _asked(
    target: config.Target,
    path: str,
    timeout: float,
    key: str | None = None,
    body: dict[str, Any] | None = None,
) -> bytes:
    """The answer to a GET, or to a POST where there is a body."""
    request = urllib.request.Request(target.url.rstrip("/").removesuffix("/v1") + path)
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    if body is not None:
        request.add_header("Content-Type", "application/json")
        request.data = json.dumps({"model": target.model, **body}).encode()
    # An engine is always on this machine: a proxy from the environment must not see the request.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(400).decode("utf-8", "replace").strip()
        message = f"HTTP {error.code} {detail}".strip()
        refused = 400 <= error.code < 500 and error.code not in (404, 408, 425, 429)
        if refused or (error.code == 404 and "model" in detail):
            raise Refused(message) from error
        raise NotReady(message) from error
    except (OSError, http.client.HTTPException) as error:
        raise NotReady(errors.why(error)) from error
