"""One request and its answer: the only source of scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# A step brings its own token and the drafted ones: 16 in a recipe of the catalogue. More at once
# were held back, by a parser or by a machine that gave this client no processor.
MOST_AT_ONCE = 17


@dataclass(frozen=True)
class Ask:
    """One chat completion to ask for.

    Attributes:
        label: What it is a sample of ("counting", "8 streams").
        stream: Whether tokens are wanted as they come; without it there is no time of the first.
        ignore_eos: Generate exactly `max_tokens`, also where the model would have ended.
        extra: Further keys of the request's body.
        timeout_s: Longest wait for the whole answer, seconds; None: the client's own.
    """

    label: str
    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int
    stream: bool = True
    ignore_eos: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None


@dataclass(frozen=True)
class Sample:
    """What one request gave. Exactly one of three: an answer, a refusal, or a fault of the harness.

    Attributes:
        seconds: From sending the request to the last byte of the answer.
        first_s: From sending it to the first token; None where the answer was not streamed.
        first_tokens: Tokens that came then: several where the engine speculates. Where it does not
            count along: the most that can have come.
        last_s: From sending it to the last token.
        pieces: Parts in which text arrived.
        tokens: Generated tokens, from the engine's own `usage`; never counted from text.
        prompt_tokens: Tokens of the prompt, from `usage`.
        asked: `max_tokens` of the request.
        status: HTTP status, None where no answer came.
        finish: The engine's finish_reason.
        thoughts: What was generated as reasoning.
        logprobs: Of each token its text and its log-probability, where these were asked for.
        refusal: The engine's words where it said that this request cannot work (HTTP 4xx).
        fault: Why this sample measures nothing about the model, or "".
    """

    label: str
    seconds: float = 0.0
    first_s: float | None = None
    first_tokens: int = 1
    last_s: float | None = None
    pieces: int = 0
    tokens: int | None = None
    prompt_tokens: int | None = None
    asked: int = 0
    status: int | None = None
    finish: str | None = None
    text: str = ""
    thoughts: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    logprobs: tuple[tuple[str, float | None], ...] = ()
    refusal: str = ""
    fault: str = ""

    @property
    def good(self) -> bool:
        """Whether it is an answer of the model."""
        return not self.fault and not self.refusal

    @property
    def rate(self) -> float:
        """Output tokens over wall time, tok/s: how the articles count."""
        return (self.tokens or 0) / self.seconds if self.seconds > 0 else 0.0

    @property
    def told(self) -> bool:
        """Whether the time of the first token is that of the first step."""
        return self.first_s is not None and self.first_tokens <= MOST_AT_ONCE

    @property
    def decode_rate(self) -> float | None:
        """Tokens per second after those that came first; None where it cannot be told."""
        if not self.told or self.first_s is None or self.last_s is None or not self.tokens:
            return None
        took, left = self.last_s - self.first_s, self.tokens - self.first_tokens
        return left / took if took > 0 and left > 0 else None
