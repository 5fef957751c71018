"""One request and its answer: the only source of scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# A step yields its own token and the drafted ones: 16 in a recipe of the catalogue. If more come at
# once, a parser or a machine without a free processor held them back.
MOST_AT_ONCE = 17


@dataclass(frozen=True)
class Ask:
    """One chat completion to request.

    Attributes:
        label: Name of the series to which the sample belongs ("counting", "8 streams").
        stream: True to receive tokens as they come; otherwise the time of the first is unknown.
        ignore_eos: Generate exactly `max_tokens`, even if the model would end earlier.
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
class BenchSample:
    """The outcome of one request: exactly one of an answer, a refusal, or a fault of the harness.

    Attributes:
        seconds: From sending the request to the last byte of the answer.
        first_s: From sending it to the first token; None if the answer was not streamed.
        first_tokens: Tokens that came at that moment, several if the engine speculates. If the
            engine does not count along, the most that can have come.
        last_s: From sending it to the last token.
        pieces: Parts in which text arrived.
        tokens: Generated tokens, from the engine's own `usage`; never counted from text.
        prompt_tokens: Tokens of the prompt, from `usage`.
        max_tokens: `max_tokens` of the request.
        status: HTTP status, or None if no answer came.
        finish: The engine's finish_reason.
        thoughts: The text generated as reasoning.
        logprobs: Text and log-probability of each token, if these were requested.
        refusal: The engine's words if it refused the request as unworkable (HTTP 4xx).
        fault: The reason why this sample measures nothing about the model, or "".
    """

    label: str
    seconds: float = 0.0
    first_s: float | None = None
    first_tokens: int = 1
    last_s: float | None = None
    pieces: int = 0
    tokens: int | None = None
    prompt_tokens: int | None = None
    max_tokens: int = 0
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
        """True if it is an answer of the model."""
        return not self.fault and not self.refusal

    @property
    def rate(self) -> float:
        """Output tokens over wall time, tok/s, as the articles count."""
        return (self.tokens or 0) / self.seconds if self.seconds > 0 else 0.0

    @property
    def tells_first_step(self) -> bool:
        """True if the first token came with the first step, so its time is that of the step."""
        return self.first_s is not None and self.first_tokens <= MOST_AT_ONCE

    @property
    def decode_rate(self) -> float | None:
        """Tok/s after the tokens that came first, or None if this cannot be told."""
        if (
            not self.tells_first_step
            or self.first_s is None
            or self.last_s is None
            or not self.tokens
        ):
            return None
        took, tokens_left = self.last_s - self.first_s, self.tokens - self.first_tokens
        return tokens_left / took if took > 0 and tokens_left > 0 else None
