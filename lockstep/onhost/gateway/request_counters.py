"""Counters for Prometheus and the page: requests, refusals, tokens and times."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram

from lockstep.onhost.core.request_kinds_and_refused_shapes import Shape
from lockstep.onhost.gateway.usage_totals import Usage

TAIL = 4096  #: Bytes at the end of an answer that are searched for its usage.
#: Label of refused requests without a valid key.
NOBODY = "-"
#: Seconds for which a person counts as active after a request.
NOW_S = 120.0
# The speed of a shorter answer is noise.
_SHORTEST_S = 0.1
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
# A JSON text cannot contain this line break, so it always begins an event.
_EVENT = b"\ndata:"
_DECODER = json.JSONDecoder()
# Names of OpenAI first, then of Anthropic and the Responses API.
_PROMPT, _COMPLETION = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")
# From an idle engine to a prompt of a hundred thousand tokens.
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Counts:
    """All counters, in a registry of their own; `usage` keeps persons' totals over restarts."""

    def __init__(self, usage: Usage, now: Callable[[], float] = time.monotonic) -> None:
        self._usage = usage
        self._now = now
        self._asking: Tally[str] = Tally()
        self._request_counts: dict[str, float] = {}
        self._speeds: dict[str, float] = {}
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
        self._evened_shapes = Counter(
            "evened", "Requests of which a shape was evened out.", ("model", "shape"), **own
        )
        self._shapes: dict[str, Tally[Shape]] = {}
        self._running = Gauge("running", "Requests under way.", ("model",), **own)

    def count_request(self, person: str, model: str) -> None:
        """Count a request that goes to a model."""
        self._requests.labels(person, model).inc()
        self._usage.add_usage(person, requests=1)

    def count_rewritten_request(self, model: str, shapes: Iterable[Shape]) -> None:
        """Count a request and the shapes that were evened out of it."""
        for shape in shapes:
            self._evened_shapes.labels(model, shape).inc()
        self._shapes.setdefault(model, Tally()).update(shapes)

    def count_refusal(self, person: str | None, reason: str) -> None:
        """Count a request that the gateway refused; `person` is None without a valid key."""
        self._refusals.labels(person or NOBODY, reason).inc()
        if person:
            self._usage.add_usage(person, refusals=1)

    def record_first_byte_time(self, model: str, seconds: float) -> None:
        """Record the time a client waited for its answer to begin."""
        self._first_byte.labels(model).observe(seconds)

    @contextlib.contextmanager
    def mark_person_active(self, person: str) -> Iterator[None]:
        """Mark a person as having a request under way until the block ends."""
        self._asking[person] += 1
        try:
            yield
        finally:
            self._asking[person] -= 1
            self._request_counts[person] = self._now()

    def page_figures(self) -> dict[str, Any]:
        """Return what the page shows, counted since the start of the gateway.

        "people" are those active now. By model, "tok_s" is the speed of the last answer, measured
        after its first byte if it was streamed, and "evened" the number of requests of which a
        shape was evened out, by shape.
        """
        late = self._now() - NOW_S
        # Names from other gateways' requests must not accumulate.
        self._request_counts = {name: at for name, at in self._request_counts.items() if at > late}
        self._asking = +self._asking
        return {
            "people": len(self._request_counts.keys() | self._asking),
            "tok_s": dict(self._speeds),
            "evened": {model: dict(shapes) for model, shapes in self._shapes.items()},
        }

    def count_tokens(
        self, person: str, model: str, tail: bytes, took_s: float = 0.0, streamed_s: float = 0.0
    ) -> None:
        """Count the tokens by the usage at the end of an answer, if it has one.

        `took_s` are the answer's seconds in all, `streamed_s` those from its first byte to its
        last.
        """
        prompt, completion = usage_in(tail)
        seconds = streamed_s if _EVENT in tail else took_s
        if completion > 1 and seconds >= _SHORTEST_S:
            self._speeds[model] = round(completion / seconds, 1)
        for kind, count in (("prompt", prompt), ("completion", completion)):
            if count:
                self._tokens.labels(person, model, kind).inc(count)
        if prompt or completion:
            self._usage.add_usage(person, prompt_tokens=prompt, completion_tokens=completion)

    def set_running_requests(self, model: str, count: int) -> None:
        """Set the number of running requests of a model."""
        self._running.labels(model).set(count)

    def prometheus_text(self) -> bytes:
        """Return the counters in Prometheus' text format."""
        return prometheus_client.generate_latest(self._registry)


def usage_in(tail: bytes) -> tuple[int, int]:
    """Return prompt and answer tokens by the last `usage` in the tail of an answer."""
    prompt = completion = 0
    for match in _USAGE.finditer(tail):
        try:
            usage, _ = _DECODER.raw_decode(tail[match.end() :].decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        prompt = _first_present_count(usage, _PROMPT) or prompt
        completion = _first_present_count(usage, _COMPLETION) or completion
    return prompt, completion


def _first_present_count(usage: dict[str, object], names: tuple[str, ...]) -> int:
    values = (usage.get(name) for name in names)
    return next((count for count in values if type(count) is int and count > 0), 0)
