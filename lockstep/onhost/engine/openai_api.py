"""Client of an engine's OpenAI-compatible HTTP API: does it answer, does it generate."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.core import config, errors

PROMPT = "Say hello."


class NotReady(Exception):
    """The engine does not serve yet; `str()` says what it answered instead."""


class Refused(Exception):
    """The engine answered that this request can never work (HTTP 4xx)."""


@dataclass(frozen=True)
class Canary:
    """One short generation: how many tokens, in how many seconds, and the text."""

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
    _exchange(urllib.request.Request(f"{_base(target)}/health"), timeout)


def counters(
    target: config.Target, key: str | None, timeout: float = 10.0
) -> engines.Counters | None:
    """What it counts about itself (GET /metrics), None where it does not say.

    NotReady when nothing answers.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"{_base(target)}/metrics", headers=headers)
    try:
        return engines.counters(_exchange(request, timeout).decode("utf-8", "replace"))
    except Refused:
        return None
    except NotReady as answer:
        if str(answer).startswith(("HTTP 404", "HTTP 501")):
            return None
        raise


def canary(target: config.Target, key: str | None, timeout: float, tokens: int = 16) -> Canary:
    """Have the engine generate up to `tokens` tokens.

    Raises NotReady (connection, 5xx, time-out, an answer without a token) or Refused (4xx: wrong
    model name, wrong key).
    """
    return generate(target, key, PROMPT, timeout, {"max_tokens": tokens})


def streamed(engine: engines.Engine | None) -> dict[str, Any]:
    """Keys of a request whose tokens are to come as they are generated, counted by the engine."""
    counted = {"include_usage": True, "continuous_usage_stats": True}
    return {"stream": True, "stream_options": counted, **(engine.each_step if engine else {})}


def generate(
    target: config.Target, key: str | None, prompt: str, timeout: float, more: dict[str, Any]
) -> Canary:
    """One answer to a prompt at temperature 0, with `more` in the request's body.

    With the keys of `streamed` it comes as a stream, and ends with its last byte all the same.
    Raises as `canary` does.
    """
    body = {
        "model": target.model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "stream": False,
        **more,
    }
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(
        f"{_base(target)}/v1/chat/completions", json.dumps(body).encode(), headers
    )
    started = time.monotonic()
    answer = _exchange(request, timeout)
    seconds = time.monotonic() - started
    count, text = _generated(answer)
    if count < 1 or not text:
        raise NotReady(f"the engine answered without a token: {answer[:200]!r}")
    return Canary(count, seconds, text)


def _base(target: config.Target) -> str:
    return target.url.rstrip("/").removesuffix("/v1")


def _generated(answer: bytes) -> tuple[int, str]:
    # A reasoning model may spend all its tokens on thinking; vLLM calls that `reasoning`,
    # SGLang and older vLLM `reasoning_content`.
    keys = ("content", "reasoning", "reasoning_content")
    count, text = 0, ""
    try:
        for part in _parts(answer):
            count = int((part.get("usage") or {}).get("completion_tokens", count))
            for choice in part["choices"]:
                message = choice.get("message") or choice.get("delta") or {}
                text += "".join(str(message.get(key) or "") for key in keys)
    except (ValueError, LookupError, TypeError, AttributeError):
        return 0, ""
    return count, text


def _parts(answer: bytes) -> list[Any]:
    """The events of a stream, or the one answer without one."""
    if not answer.startswith(b"data:"):
        return [json.loads(answer)]
    lines = (line.removeprefix(b"data:").strip() for line in answer.splitlines())
    return [json.loads(line) for line in lines if line and line != b"[DONE]"]


def _exchange(request: urllib.request.Request, timeout: float) -> bytes:
    # An engine is always on this machine: a proxy from the environment must not see the request.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(400).decode("utf-8", "replace").strip()
        message = f"HTTP {error.code} {detail}".strip()
        if 400 <= error.code < 500 and error.code not in (404, 408, 425, 429):
            raise Refused(message) from error
        if error.code == 404 and "model" in detail:
            raise Refused(message) from error
        raise NotReady(message) from error
    except (OSError, http.client.HTTPException) as error:
        raise NotReady(errors.why(error)) from error
