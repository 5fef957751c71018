"""An engine's counters, from its Prometheus page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^([a-z_]+:[a-z_]+)(\{[^\n]*\})? ([-+.\deE]+)(?: \d+)?$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Counters:
    """One reading; totals are since the engine's start. None: this engine does not publish it.

    Attributes:
        outstanding: Requests running and waiting now.
        moving: Counters that grow with every step of the engine, by name.
        finished_requests: Requests that were answered or given up.
        generated_tokens: Tokens generated.
        cached_tokens: Prompt tokens that the prefix cache answered.
        drafts: Steps for which tokens were drafted.
        drafted_tokens: Tokens drafted.
        accepted_tokens: Drafted tokens that were accepted.
        tokens_per_step: Gauge of tokens per step.
        rate: Gauge of tokens per second, of all requests together.
    """

    outstanding: int
    moving: Mapping[str, float]
    finished_requests: int | None = None
    generated_tokens: int | None = None
    cached_tokens: int | None = None
    drafts: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    tokens_per_step: float | None = None
    rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """The names of `Counters` on one engine's page; "" for counters that it does not publish.

    Attributes:
        given_up: The label of a request whose client, perhaps the wedge watch, waits no more: no
            sign of life.
    """

    outstanding: tuple[str, ...]
    moving: tuple[str, ...]
    given_up: str | None = None
    finished_requests: str = ""
    generated_tokens: str = ""
    cached_tokens: str = ""
    drafts: str = ""
    drafted_tokens: str = ""
    accepted_tokens: str = ""
    tokens_per_step: str = ""
    rate: str = ""

    def parse_page(self, page: str) -> Counters | None:
        """Read a page; return None if it is not this engine's."""
        sums: dict[str, float] = {}
        lively: dict[str, float] = {}
        for name, labels, value in _LINE.findall(page):
            sums[name] = sums.get(name, 0.0) + float(value)
            if name in self.moving and not (self.given_up and self.given_up in labels):
                lively[name] = lively.get(name, 0.0) + float(value)
        if not lively:
            return None
        totals = (
            "finished_requests",
            "generated_tokens",
            "cached_tokens",
            "drafts",
            "drafted_tokens",
            "accepted_tokens",
        )
        values = {total: sums.get(getattr(self, total)) for total in totals}
        return Counters(
            outstanding=int(sum(sums.get(name, 0.0) for name in self.outstanding)),
            moving={name: lively[name] for name in self.moving if name in lively},
            tokens_per_step=sums.get(self.tokens_per_step),
            rate=sums.get(self.rate),
            **{total: None if value is None else int(value) for total, value in values.items()},
        )
