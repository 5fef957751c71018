"""What the gateway tells Prometheus: requests, refusals, tokens and waiting times."""

from __future__ import annotations

import json
import re
from typing import Any

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram

from lockstep.onhost.gateway.usage import Usage

TAIL = 4096  #: Bytes at the end of an answer in which its usage is looked for.
#: The person of a refused request that had no valid key.
NOBODY = "-"
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_DECODER = json.JSONDecoder()
# OpenAI's names, and those of Anthropic and of Responses.
_PROMPT, _COMPLETION = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")
# From an engine at rest to a prompt of a hundred thousand tokens.
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Counts:
    """All of it, in a registry of its own; totals of persons are kept over restarts by `usage`."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self._registry)
        own: dict[str, Any] = {"namespace": "lockstep_gateway", "registry": self._registry}
        self._requests = Counter(
            "requests", "Requests that went to a model.", ("person", "model"), **own
        )
        self._refusals = Counter(
            "refusals", "Requests that the gateway refused.", ("person", "reason"), **own
        )
        self._tokens = Counter(
            "tokens", "Tokens, where answers tell them.", ("person", "model", "kind"), **own
        )
        self._first_byte = Histogram(
            "first_byte_seconds",
            "From a request's end to its answer's first byte.",
            ("model",),
            buckets=_SECONDS,
            **own,
        )
        self._running = Gauge("running", "Requests under way.", ("model",), **own)

    def request(self, person: str, model: str) -> None:
        """One that goes to a model."""
        self._requests.labels(person, model).inc()
        self._usage.add(person, requests=1)

    def refusal(self, person: str | None, reason: str) -> None:
        """One that the gateway answers with an error; `person`: None without a valid key."""
        self._refusals.labels(person or NOBODY, reason).inc()
        if person:
            self._usage.add(person, refused=1)

    def first_byte(self, model: str, seconds: float) -> None:
        """How long a client waited for its answer to begin."""
        self._first_byte.labels(model).observe(seconds)

    def tokens(self, person: str, model: str, tail: bytes) -> None:
        """What an answer says about its tokens at its end; nothing where it says nothing."""
        prompt, completion = usage_in(tail)
        for kind, count in (("prompt", prompt), ("completion", completion)):
            if count:
                self._tokens.labels(person, model, kind).inc(count)
        if prompt or completion:
            self._usage.add(person, prompt_tokens=prompt, completion_tokens=completion)

    def running(self, model: str, count: int) -> None:
        """Requests under way at a model."""
        self._running.labels(model).set(count)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return prometheus_client.generate_latest(self._registry)


def usage_in(tail: bytes) -> tuple[int, int]:
    """Tokens of the prompt and of the answer by the last `usage` in the end of an answer."""
    prompt = completion = 0
    for match in _USAGE.finditer(tail):
        try:
            usage, _ = _DECODER.raw_decode(tail[match.end() :].decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        prompt = _first(usage, _PROMPT) or prompt
        completion = _first(usage, _COMPLETION) or completion
    return prompt, completion


def _first(usage: dict[str, object], names: tuple[str, ...]) -> int:
    found = (usage.get(name) for name in names)
    return next((count for count in found if type(count) is int and count > 0), 0)
