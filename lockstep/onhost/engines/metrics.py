"""An engine's counters, from its Prometheus page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^([a-z_]+:[a-z_]+)(\{[^\n]*\})? ([-+.\deE]+)(?: \d+)?$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Counters:
    """One look; totals are since the engine's start. None: this engine does not publish it.

    Attributes:
        outstanding: Requests running and waiting now.
        moving: What grows with every step of the engine, by name.
        finished: Requests that were answered or given up.
        generated: Tokens generated.
        cached: Prompt tokens that the prefix cache answered.
        drafts: Steps for which tokens were drafted.
        drafted: Tokens drafted.
        accepted: Drafted tokens that were accepted.
        tokens_per_step: Gauge of tokens per step.
        rate: Gauge of tokens per second, of all requests together.
    """

    outstanding: int
    moving: Mapping[str, float]
    finished: int | None = None
    generated: int | None = None
    cached: int | None = None
    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    tokens_per_step: float | None = None
    rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """The names of `Counters` on one engine's page; "" for what it does not publish.

    Attributes:
        given_up: The label of a request whose client waits no more, the wedge watch perhaps: no
            sign of life.
    """

    outstanding: tuple[str, ...]
    moving: tuple[str, ...]
    given_up: str | None = None
    finished: str = ""
    generated: str = ""
    cached: str = ""
    drafts: str = ""
    drafted: str = ""
    accepted: str = ""
    tokens_per_step: str = ""
    rate: str = ""

    def read(self, page: str) -> Counters | None:
        """What a page says; None when it is not this engine's."""
        sums: dict[str, float] = {}
        lively: dict[str, float] = {}
        for name, labels, value in _LINE.findall(page):
            sums[name] = sums.get(name, 0.0) + float(value)
            if name in self.moving and not (self.given_up and self.given_up in labels):
                lively[name] = lively.get(name, 0.0) + float(value)
        if not lively:
            return None
        totals = ("finished", "generated", "cached", "drafts", "drafted", "accepted")
        found = {total: sums.get(getattr(self, total)) for total in totals}
        return Counters(
            outstanding=int(sum(sums.get(name, 0.0) for name in self.outstanding)),
            moving={name: lively[name] for name in self.moving if name in lively},
            tokens_per_step=sums.get(self.tokens_per_step),
            rate=sums.get(self.rate),
            **{total: None if value is None else int(value) for total, value in found.items()},
        )
