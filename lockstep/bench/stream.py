"""The content of an answer: tokens, text, counts, and their times.

Text is no sign of a token, because an engine holds back half a character, a tag or a call. So the
engine is asked to count along, at each step if it can (`Engine.each_step`). Text counts only if the
engine does not count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.bench.sample import Ask, BenchSample

# The keys in which engines put reasoning: vLLM `reasoning`, SGLang and older vLLM
# `reasoning_content`.
_THOUGHTS = ("reasoning", "reasoning_content")


@dataclass
class Stream:
    """The part of an answer received so far; times are the clock's."""

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
    is_done: bool = False
    fault: str = ""

    def line(self, line: bytes, at: float) -> None:
        """Process one line of an event stream, and the time at which it came.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: the line is not of this API.
        """
        name, _, data = line.strip().partition(b":")
        data = data.strip()
        if name != b"data" or not data or self.fault:
            return
        if data == b"[DONE]":
            self.is_done = True
            return
        event = json.loads(data)
        if "error" in event:
            self.fault = f"an error in the stream: {json.dumps(event['error'])[:200]}"
            return
        self.model = event.get("model") or self.model
        earlier_count = self.count
        self.usage = event.get("usage") or self.usage
        # llama.cpp counts along under keys of its own.
        along = _count(self.usage, "completion_tokens"), _count(event.get("timings"), "predicted_n")
        self.count = max(earlier_count, *(count or 0 for count in along))
        choices = event.get("choices") or ()
        # The count of the whole answer comes in an event without choices, after the last token.
        has_token = bool(choices) and self.count > earlier_count
        for choice in choices:
            self.finish = choice.get("finish_reason") or self.finish
            if self._add(choice.get("delta") or {}):
                self.pieces += 1
                has_token = True
        if has_token:
            if self.first is None:
                self.first, self.first_tokens = at, self.count
            self.last = at

    def whole(self, text: bytes) -> None:
        """Process an answer that was not streamed; raises as `line` does."""
        answer = json.loads(text)
        choice = answer["choices"][0]
        self.model = answer.get("model")
        self.usage = answer.get("usage")
        self.finish = choice.get("finish_reason")
        self.is_done = True
        self.pieces = int(self._add(choice["message"]))
        contents = (choice.get("logprobs") or {}).get("content") or ()
        self.logprobs = tuple((str(token["token"]), token.get("logprob")) for token in contents)

    def sample(self, ask: Ask, model: str, began: float, end_time: float) -> BenchSample:
        """Return the sample of a whole answer with HTTP status 200."""
        tokens = _count(self.usage, "completion_tokens")
        # If the engine did not count along, this is the most that can have come with the first
        # text.
        at_most = max(1, (tokens or 1) - self.pieces + 1)
        return BenchSample(
            ask.label,
            max_tokens=ask.max_tokens,
            status=200,
            seconds=end_time - began,
            first_s=None if self.first is None else self.first - began,
            first_tokens=self.first_tokens or at_most,
            last_s=None if self.last is None else self.last - began,
            pieces=self.pieces,
            tokens=tokens,
            prompt_tokens=_count(self.usage, "prompt_tokens"),
            finish=self.finish,
            text=self.text,
            thoughts=self.thoughts,
            tool_calls=tuple(self.calls),
            logprobs=self.logprobs,
            fault=self.fault or self._fault(model, tokens),
        )

    def _add(self, part: Mapping[str, Any]) -> bool:
        text, calls = str(part.get("content") or ""), part.get("tool_calls") or []
        thoughts = next((str(part[key]) for key in _THOUGHTS if part.get(key)), "")
        self.text += text
        self.thoughts += thoughts
        self.calls += calls
        return bool(text or thoughts or calls)

    def _fault(self, model: str, tokens: int | None) -> str:
        """Return why a complete-looking answer measures nothing, or ""."""
        if not self.is_done or self.finish is None:
            missing = "[DONE]" if self.finish else "finish_reason"
            return f"truncated: the stream ended without {missing}"
        if self.model is not None and self.model != model:
            return f"another model answered: {self.model!r} instead of {model!r}"
        if tokens is None:
            return "no usage in the answer, and tokens are never counted from text"
        if tokens < 1:
            return "usage counts no token"
        if not (self.text.strip() or self.thoughts.strip() or self.calls):
            return f"empty text, although usage counts {tokens} tokens"
        return ""


def _count(usage: Mapping[str, Any] | None, key: str) -> int | None:
    value = (usage or {}).get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
