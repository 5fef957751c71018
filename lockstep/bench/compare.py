"""Two results beside each other: ratio, spread, and whether the difference is more than noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.bench.results import Result

# Two standard errors: noise exceeds that once in twenty comparisons of many samples.
ERRORS = 2.0
# Three runs say little about their own spread. A few percent between runs is what the articles saw
# on an idle Spark (65.5 to 77.8 tok/s in three runs of article 004: 9 % deviation).
LEAST_SHARE = 0.02
_HIGHER = ("_tok_s", "acceptance", "tokens_per_step", "passed", "valid", "read")


@dataclass(frozen=True)
class Difference:
    """One figure in both results.

    Attributes:
        suite: Suite it is of.
        name: Figure inside it.
        before: In the first.
        after: In the second.
        ratio: Second over first.
        noise: Share by which runs alone would differ.
        verdict: "better", "worse", "noise", or "differs" where neither direction is better.
    """

    suite: str
    name: str
    before: float
    after: float
    ratio: float
    noise: float
    verdict: str


def differences(first: Result, second: Result) -> Iterator[Difference]:
    """Every figure that both results have; suites without a score have none."""
    for suite in first.suites:
        other = second.suite(suite.name)
        if other is None or "measured" not in (suite.verdict, other.verdict):
            continue
        theirs = dict(_figures(other.summary))
        for name, figure in _figures(suite.summary):
            if name in theirs:
                found = _difference(suite.name, name, figure, theirs[name])
                if found:
                    yield found


def _figures(
    summary: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, value in summary.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and "deviation" in value:
            yield name, value
        elif isinstance(value, Mapping):
            yield from _figures(value, f"{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, {"mean": value, "deviation": 0.0, "count": 1}


def _difference(
    suite: str, name: str, first: Mapping[str, Any], second: Mapping[str, Any]
) -> Difference | None:
    before, after = float(first["mean"]), float(second["mean"])
    if before <= 0:
        return None
    errors = [value["deviation"] / math.sqrt(max(1, value["count"])) for value in (first, second)]
    noise = max(LEAST_SHARE, ERRORS * math.hypot(*errors) / before)
    ratio = after / before
    verdict = "noise"
    if abs(ratio - 1) > noise:
        verdict = "better" if (ratio > 1) == _higher_is_better(name) else "worse"
        verdict = verdict if _directed(name) else "differs"
    return Difference(suite, name, before, after, ratio, noise, verdict)


def _higher_is_better(name: str) -> bool:
    return name.rpartition(".")[2].endswith(_HIGHER)


def _directed(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last.endswith((*_HIGHER, "_s", "seconds", "invented"))
