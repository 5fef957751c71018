"""What the gateway counts, for Prometheus and its page: requests, refusals, tokens and times."""

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

from lockstep.onhost.core.kind import Shape
from lockstep.onhost.gateway.usage import Usage

TAIL = 4096  #: Bytes at the end of an answer in which its usage is looked for.
#: The person of a refused request that had no valid key.
NOBODY = "-"
#: Who has asked within these seconds is among the people of now.
NOW_S = 120.0
# Of a shorter answer the speed is noise.
_SHORTEST_S = 0.1
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
# A line of its own, which a text within a document of JSON cannot be.
_EVENT = b"\ndata:"
_DECODER = json.JSONDecoder()
# OpenAI's names, and those of Anthropic and of Responses.
_PROMPT, _COMPLETION = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")
# From an engine at rest to a prompt of a hundred thousand tokens.
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Counts:
    """All of it, in a registry of its own; totals of persons are kept over restarts by `usage`."""

    def __init__(self, usage: Usage, now: Callable[[], float] = time.monotonic) -> None:
        self._usage = usage
        self._now = now
        self._asking: Tally[str] = Tally()
        self._asked: dict[str, float] = {}
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
        self._evened = Counter(
            "evened",
            "Requests of which a shape was evened out.",
            ("model", "shape"),
            **own,
        )
        self._shapes: dict[str, Tally[Shape]] = {}
        self._running = Gauge("running", "Requests under way.", ("model",), **own)

    def request(self, person: str, model: str) -> None:
        """One that goes to a model."""
        self._requests.labels(person, model).inc()
        self._usage.add(person, requests=1)

    def evening(self, model: str, shapes: Iterable[Shape]) -> None:
        """One of which shapes were evened out."""
        for shape in shapes:
            self._evened.labels(model, shape).inc()
        self._shapes.setdefault(model, Tally()).update(shapes)

    def refusal(self, person: str | None, reason: str) -> None:
        """One that the gateway answers with an error; `person`: None without a valid key."""
        self._refusals.labels(person or NOBODY, reason).inc()
        if person:
            self._usage.add(person, refused=1)

    def first_byte(self, model: str, seconds: float) -> None:
        """How long a client waited for its answer to begin."""
        self._first_byte.labels(model).observe(seconds)

    @contextlib.contextmanager
    def asking(self, person: str) -> Iterator[None]:
        """A person has a request under way until the block ends."""
        self._asking[person] += 1
        try:
            yield
        finally:
            self._asking[person] -= 1
            self._asked[person] = self._now()

    def use(self) -> dict[str, Any]:
        """What a page shows of it, since the start of the gateway.

        "people" who ask now; by model, "tok_s" of the last answer, and "evened": requests of which
        a shape was evened out, by shape. The speed is that of one answer, after its first byte
        where it was streamed.
        """
        late = self._now() - NOW_S
        # Names that came with another gateway's requests must not add up.
        self._asked = {name: at for name, at in self._asked.items() if at > late}
        self._asking = +self._asking
        return {
            "people": len(self._asked.keys() | self._asking),
            "tok_s": dict(self._speeds),
            "evened": {model: dict(shapes) for model, shapes in self._shapes.items()},
        }

    def tokens(
        self, person: str, model: str, tail: bytes, took_s: float = 0.0, streamed_s: float = 0.0
    ) -> None:
        """What an answer says about its tokens at its end; nothing where it says nothing.

        It took `took_s` seconds in all, and `streamed_s` from its first byte to its last.
        """
        prompt, completion = usage_in(tail)
        seconds = streamed_s if _EVENT in tail else took_s
        if completion > 1 and seconds >= _SHORTEST_S:
            self._speeds[model] = round(completion / seconds, 1)
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
