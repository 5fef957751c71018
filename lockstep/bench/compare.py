"""Two servers beside each other: ratio, interval, and whether the difference is more than noise.

The ratios of every sample of the second over every sample of the first are put in order. Their
middle is the ratio (Hodges and Lehmann's), and so many at each end are left out that in 95 of 100
cases the true ratio lies between (Mann and Whitney's distribution). It assumes no shape of the
noise, and a lone outlier moves neither. Two runs of one server differ by more than that, because
clocks, heat and memory layout drift between them: the interval must lie beyond a floor of noise. A
server that changes its pace within a run changes it between runs too: the floor is then as wide.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from lockstep.bench.results import Result, ResultError, SuiteResult, spread

# Chance that the true ratio is outside of its interval.
CHANCE = 0.05
# How far two runs of one server drift apart at most: 0.3 to 0.7 % was seen within minutes on an
# H200. A first token takes milliseconds, and that server took 0.16 to 0.26 s for the first of 8.
# Simulated with a drift of 0.5 % and a noise of 0.3 to 2 %, this floor and this chance find a
# difference in one of 600 equal pairs of `decode`, and in each of 600 that are 5 % apart.
FLOOR, FLOOR_FIRST = 0.02, 0.1
# With so many runs of each, one sample per run is compared. Half the floor is enough then, because
# the drift is in the samples.
RUNS = 5
_FIRST = ("first_token_s", "prefill_tok_s")
_HIGHER = ("_tok_s", "acceptance", "tokens_per_step", "passed", "valid", "read")
# What was asked for says nothing about a server.
_GIVEN = ("tokens", "prompt_tokens")

# Figure → the samples of each run.
_Figures = dict[str, list[list[float]]]


@dataclass(frozen=True)
class Difference:
    """One figure of both servers.

    Attributes:
        first, second: Samples of each, with mean and ends (`results.spread`).
        ratio: Second over first.
        low, high: The ratios that these samples allow, None where they are too few.
        verdict: "better", "worse", "noise", "differs" where neither direction is better, or
            "cannot tell" with the reason.
    """

    suite: str
    name: str
    first: Mapping[str, Any]
    second: Mapping[str, Any]
    ratio: float
    low: float | None
    high: float | None
    verdict: str


def differences(first: Sequence[Result], second: Sequence[Result]) -> Iterator[Difference]:
    """Every figure that the runs of both servers have; suites without a score have none.

    Raises:
        ResultError: they were measured with answers of different lengths.
    """
    for name in dict.fromkeys(suite.name for result in first for suite in result.suites):
        ours, theirs = _measured(first, name), _measured(second, name)
        lengths = {suite.summary.get("tokens") for suite in (*ours, *theirs)}
        if len(lengths) > 1:
            raise ResultError(
                f"{name} was measured with answers of different lengths",
                found=" and ".join(f"{length} tokens" for length in sorted(lengths, key=str)),
                remedy="Measure both with the same --tokens.",
            )
        before, after = _figures(ours), _figures(theirs)
        for figure in before:
            if figure in after and min(itertools.chain(*before[figure])) > 0:
                yield _difference(name, figure, before[figure], after[figure])


def _measured(results: Sequence[Result], name: str) -> list[SuiteResult]:
    suites = (result.suite(name) for result in results)
    return [suite for suite in suites if suite and suite.verdict == "measured"]


def _figures(suites: Sequence[SuiteResult]) -> _Figures:
    found: _Figures = {}
    for suite in suites:
        for name, samples in _samples(suite.summary):
            found.setdefault(name, []).append(samples)
    return found


def _samples(summary: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[float]]]:
    for key, value in summary.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and "samples" in value:
            yield name, list(value["samples"])
        elif isinstance(value, Mapping):
            yield from _samples(value, f"{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and key not in _GIVEN:
            yield name, [float(value)]


def _difference(
    suite: str, name: str, first: Sequence[list[float]], second: Sequence[list[float]]
) -> Difference:
    floor = FLOOR_FIRST if name.endswith(_FIRST) else FLOOR
    if min(len(first), len(second)) >= RUNS:
        floor /= 2
        ours, theirs = [median(run) for run in first], [median(run) for run in second]
    else:
        ours, theirs = list(itertools.chain(*first)), list(itertools.chain(*second))
    floor = max(floor, _restless(ours), _restless(theirs))
    ratios = sorted(after / before for before in ours for after in theirs)
    sizes = len(ours), len(theirs)
    kept = left_out(*sizes)
    low, high = (ratios[kept - 1], ratios[-kept]) if kept else (None, None)
    few = "one sample" if 1 in sizes else f"{sizes[0]} and {sizes[1]} samples"
    verdict = _verdict(name, low, high, floor) or f"cannot tell: {few}"
    both = spread(ours) or {}, spread(theirs) or {}
    return Difference(suite, name, *both, median(ratios), low, high, verdict)


def _restless(samples: Sequence[float]) -> float:
    """Half of the width of the samples' middle half, as a share of their median."""
    if len(samples) < 4:
        return 0.0
    low, middle, high = quantiles(samples, n=4)
    return (high - low) / middle / 2


def _verdict(name: str, low: float | None, high: float | None, floor: float) -> str | None:
    if low is None or high is None:
        return None
    if low <= 1 + floor and high >= 1 - floor:
        return "noise"
    last = name.rpartition(".")[2]
    if not last.endswith((*_HIGHER, "_s", "seconds", "invented")):
        return "differs"
    return "better" if (low > 1) == last.endswith(_HIGHER) else "worse"


def left_out(first: int, second: int) -> int:
    """How many ratios at each end lie outside of the interval; 0: the samples are too few.

    The number of pairs in which the second is ahead has the distribution of the Gaussian binomial
    coefficient, where both are samples of the same.
    """
    ways = [1] + [0] * (first * second)
    for step in range(1, first + 1):
        for at in range(len(ways) - 1, second + step - 1, -1):
            ways[at] -= ways[at - second - step]
        for at in range(step, len(ways)):
            ways[at] += ways[at - step]
    below = list(itertools.accumulate(ways))
    return bisect_right(below, CHANCE / 2 * math.comb(first + second, first))
