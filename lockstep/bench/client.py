"""Direct HTTP to one engine, timed: no proxy of the environment is used.

Each read returns what has arrived, so that the time of a token is the time of its bytes. A request
leaves at once: 64 threads needed 66 ms to send one each with `requests` (two cores, 2026-11-23),
which a wave of requests would count as the engine's. Text is no sign of a token: an engine holds
back half a character, a tag or a call. So the engine is asked to count along, and to say so at each
step where it can (`Engine.each_step`); text counts only where it does not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError, ReadTimeoutError

from lockstep.bench.clock import Clock
from lockstep.bench.sample import Ask, Sample
from lockstep.onhost.core.errors import why
from lockstep.onhost.engine.openai_api import streamed
from lockstep.onhost.engines import Engine

CONNECT_S = 10.0
_BROKEN = (HTTPError, OSError)
_REFUSED = (400, 413, 415, 422, 501)
# Where engines put reasoning: vLLM `reasoning`, SGLang and older vLLM `reasoning_content`.
_THOUGHTS = ("reasoning", "reasoning_content")
_Answer = urllib3.BaseHTTPResponse


class _TooLong(Exception):
    """A whole answer took longer than it may."""


class Unreachable(Exception):
    """The engine did not answer a question about itself; `str()` says what happened instead."""


@dataclass
class _Stream:
    """What a stream of events has said so far."""

    text: str = ""
    thoughts: str = ""
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    logprobs: tuple[tuple[str, float | None], ...] = ()
    pieces: int = 0
    first: float | None = None
    first_tokens: int = 0
    last: float | None = None
    finish: str | None = None
    usage: Mapping[str, Any] | None = None
    count: int = 0
    model: str | None = None
    done: bool = False
    fault: str = ""


class Client:
    """Asks one engine.

    Args:
        url: Of the API, without /v1.
        model: The model's name in that API.
        key: API key, or None.
        clock: Where times come from.

    Attributes:
        engine: Which one answers, None while it is not known.
        timeout_s: Longest wait for a whole answer, seconds.
    """

    engine: Engine | None = None
    timeout_s = 600.0

    def __init__(self, url: str, model: str, key: str | None = None, clock: Clock | None = None):
        self.url = url.rstrip("/").removesuffix("/v1")
        self.model = model
        self.clock = clock or Clock()
        self._key = key

    def connection(self) -> urllib3.PoolManager:
        """An open connection for one request: a wave opens its own before it begins.

        Where none can be opened, the request will say why.
        """
        pool = urllib3.PoolManager(retries=False)
        with suppress(*_BROKEN):
            pool.request("GET", f"{self.url}/health", timeout=CONNECT_S)
        return pool

    def _send(
        self,
        method: str,
        path: str,
        limit_s: float,
        body: object = None,
        pool: urllib3.PoolManager | None = None,
    ) -> _Answer:
        """An answer whose body is still to be read, on a connection that is used once.

        An engine may end a resting connection at any moment.
        """
        headers = {"Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        pool = pool or urllib3.PoolManager(retries=False)
        return pool.request(
            method,
            self.url + path,
            json=body,
            headers=headers,
            timeout=urllib3.Timeout(connect=CONNECT_S, read=limit_s),
            preload_content=False,
        )

    def get(self, path: str, timeout_s: float = 10.0) -> str | None:
        """Text of a GET; None where the engine has no such page.

        Raises:
            Unreachable: no answer, or one that is neither 200 nor 404.
        """
        try:
            with self._send("GET", path, timeout_s) as answer:
                text = answer.data.decode("utf-8", "replace")
        except _BROKEN as fault:
            raise Unreachable(f"{path}: {_short(fault)}") from fault
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise Unreachable(f"{path}: HTTP {answer.status} {text[:200]}")
        return text

    def complete(self, ask: Ask, pool: urllib3.PoolManager | None = None) -> Sample:
        """One completion, on a new connection or on that of `connection`.

        Never raises: what went wrong stands in the sample.
        """
        body = {
            "model": self.model,
            "messages": list(ask.messages),
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            # A lone token has an event anyhow, and the ids of a long prompt would come with it.
            **(streamed(self.engine if ask.max_tokens > 1 else None) if ask.stream else {}),
            **({"ignore_eos": True} if ask.ignore_eos else {}),
            **ask.extra,
        }
        began = self.clock.now()
        empty = Sample(ask.label, asked=ask.max_tokens)
        limit_s = ask.timeout_s or self.timeout_s
        try:
            with self._send("POST", "/v1/chat/completions", limit_s, body, pool) as answer:
                sample = self._read(ask, answer, began, limit_s)
        except _TooLong:
            sample = replace(empty, fault=f"timed out: no answer within {limit_s:.0f} s")
        except ReadTimeoutError:
            sample = replace(empty, fault=f"timed out: silent for {limit_s:.0f} s")
        except _BROKEN as fault:
            sample = replace(empty, fault=_short(fault))
        except (ValueError, LookupError, TypeError, AttributeError) as fault:
            sample = replace(empty, fault=f"not an answer of this API: {fault}")
        return replace(sample, seconds=sample.seconds or self.clock.now() - began)

    def _read(self, ask: Ask, answer: _Answer, began: float, limit_s: float) -> Sample:
        empty = Sample(ask.label, asked=ask.max_tokens, status=answer.status)
        if answer.status != 200:
            words = " ".join(answer.data.decode("utf-8", "replace")[:400].split())
            said = f"HTTP {answer.status} {words}"
            refused = answer.status in _REFUSED
            return replace(empty, refusal=said) if refused else replace(empty, fault=said)
        found = _Stream()
        if ask.stream:
            for line in self._lines(answer, began + limit_s):
                _event(found, line, self.clock.now())
        else:
            _whole(found, answer.json())
        return replace(
            empty,
            seconds=self.clock.now() - began,
            first_s=None if found.first is None else found.first - began,
            first_tokens=found.first_tokens or _at_most(found),
            last_s=None if found.last is None else found.last - began,
            pieces=found.pieces,
            tokens=_count(found.usage, "completion_tokens"),
            prompt_tokens=_count(found.usage, "prompt_tokens"),
            finish=found.finish,
            text=found.text,
            thoughts=found.thoughts,
            tool_calls=tuple(found.calls),
            logprobs=found.logprobs,
            fault=found.fault or _fault(found, self.model),
        )

    def _lines(self, answer: _Answer, deadline: float) -> Iterator[bytes]:
        kept = b""
        while chunk := answer.read1(65536):
            *lines, kept = (kept + chunk).split(b"\n")
            yield from lines
            if self.clock.now() > deadline:
                raise _TooLong
        yield kept


def _event(found: _Stream, line: bytes, at: float) -> None:
    name, _, data = line.strip().partition(b":")
    data = data.strip()
    if name != b"data" or not data or found.fault:
        return
    if data == b"[DONE]":
        found.done = True
        return
    event = json.loads(data)
    if "error" in event:
        found.fault = f"an error in the stream: {json.dumps(event['error'])[:200]}"
        return
    found.model = event.get("model") or found.model
    before = found.count
    found.usage = event.get("usage") or found.usage
    # llama.cpp counts along in words of its own.
    along = _count(found.usage, "completion_tokens"), _count(event.get("timings"), "predicted_n")
    found.count = max(before, *(count or 0 for count in along))
    choices = event.get("choices") or ()
    # The count of the whole answer comes in an event without choices, after the last token.
    arrived = bool(choices) and found.count > before
    for choice in choices:
        delta = choice.get("delta") or {}
        found.finish = choice.get("finish_reason") or found.finish
        if _add(found, delta):
            found.pieces += 1
            arrived = True
    if arrived:
        if found.first is None:
            found.first, found.first_tokens = at, found.count
        found.last = at


def _add(found: _Stream, part: Mapping[str, Any]) -> bool:
    text = str(part.get("content") or "")
    thoughts = next((str(part[key]) for key in _THOUGHTS if part.get(key)), "")
    calls = part.get("tool_calls") or []
    found.text += text
    found.thoughts += thoughts
    found.calls += calls
    return bool(text or thoughts or calls)


def _whole(found: _Stream, answer: Mapping[str, Any]) -> None:
    choice = answer["choices"][0]
    found.model = answer.get("model")
    found.usage = answer.get("usage")
    found.finish = choice.get("finish_reason")
    found.done = True
    found.pieces = int(_add(found, choice["message"]))
    each = (choice.get("logprobs") or {}).get("content") or ()
    found.logprobs = tuple((str(one["token"]), one.get("logprob")) for one in each)


def _at_most(found: _Stream) -> int:
    """The most tokens that can have come with the first text, where the engine did not count."""
    return max(1, (_count(found.usage, "completion_tokens") or 1) - found.pieces + 1)


def _fault(found: _Stream, model: str) -> str:
    """Why a complete-looking answer measures nothing, or ""."""
    if not found.done or found.finish is None:
        missing = "[DONE]" if found.finish else "finish_reason"
        return f"truncated: the stream ended without {missing}"
    if found.model is not None and found.model != model:
        return f"another model answered: {found.model!r} instead of {model!r}"
    tokens = _count(found.usage, "completion_tokens")
    if tokens is None:
        return "no usage in the answer, and tokens are never counted from text"
    if tokens < 1:
        return "usage counts no token"
    if not (found.text.strip() or found.thoughts.strip() or found.calls):
        return f"empty text, although usage counts {tokens} tokens"
    return ""


def _count(usage: Mapping[str, Any] | None, key: str) -> int | None:
    value = (usage or {}).get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _short(fault: Exception) -> str:
    """The innermost reason; urllib3 wraps the socket's."""
    return f"{type(fault).__name__}: {why(fault.__cause__ or fault)}"[:200]
