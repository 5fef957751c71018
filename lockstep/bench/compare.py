"""The comparison of two servers: ratio, interval, and a verdict on noise.

Every sample of the second is divided by every sample of the first, and the ratios are sorted. Their
median is the ratio (Hodges and Lehmann). So many ratios at each end are left out that in 95 of 100
cases the true ratio lies between (the distribution of Mann and Whitney). The method assumes no
shape of the noise, and a lone outlier moves neither figure. Two runs of one server differ by more
than that, because clocks, heat and memory layout drift between runs. Therefore the interval must
lie beyond a noise minimum. A server that changes its pace within a run also changes it between
runs: its noise minimum is as wide as that change.
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

# Probability that the true ratio lies outside its interval.
CHANCE = 0.05
# The most that two runs of one server drift apart: 0.3 to 0.7 % was seen within minutes on an H200.
# A first token takes milliseconds, and that server took 0.16 to 0.26 s for the first of 8.
# Simulated with a drift of 0.5 % and a noise of 0.3 to 2 %, this minimum and this chance find a
# difference in one of 600 equal pairs of `decode`, and in each of 600 that are 5 % apart.
NOISE, NOISE_FIRST = 0.02, 0.1
# With this many runs of each, one sample per run is compared. Half the minimum is enough then,
# because the samples contain the drift.
RUNS = 5
_FIRST = ("first_token_s", "prefill_tok_s")
_HIGHER = ("_tok_s", "acceptance", "tokens_per_step", "passed", "valid", "read")
# These values were requested, so they say nothing about a server.
_GIVEN = ("tokens", "prompt_tokens")

# Each figure with the samples of each run.
_Figures = dict[str, list[list[float]]]


@dataclass(frozen=True)
class ScoreDifference:
    """The comparison of one figure between both servers.

    Attributes:
        first, second: Samples of each, with mean and ends (`results.spread`).
        ratio: Second over first.
        low, high: The ends of the interval that these samples allow; None: too few samples.
        verdict: "better", "worse", "noise", "differs" if neither direction is better, or "cannot
            tell" with the reason.
    """

    suite: str
    name: str
    first: Mapping[str, Any]
    second: Mapping[str, Any]
    ratio: float
    low: float | None
    high: float | None
    verdict: str


def differences(first: Sequence[Result], second: Sequence[Result]) -> Iterator[ScoreDifference]:
    """Yield every figure that the runs of both servers have; suites without a score give none.

    Raises:
        ResultError: the runs were measured with answers of different lengths.
    """
    for name in dict.fromkeys(suite.name for result in first for suite in result.suites):
        first_results, second_results = (
            _measured_results(first, name),
            _measured_results(second, name),
        )
        lengths = {suite.summary.get("tokens") for suite in (*first_results, *second_results)}
        if len(lengths) > 1:
            raise ResultError(
                f"{name} was measured with answers of different lengths",
                found=" and ".join(f"{length} tokens" for length in sorted(lengths, key=str)),
                remedy="Measure both with the same --tokens.",
            )
        first_figures, second_figures = _figures(first_results), _figures(second_results)
        for figure in first_figures:
            if figure in second_figures and min(itertools.chain(*first_figures[figure])) > 0:
                yield _difference(name, figure, first_figures[figure], second_figures[figure])


def _measured_results(results: Sequence[Result], name: str) -> list[SuiteResult]:
    suites = (result.suite(name) for result in results)
    return [suite for suite in suites if suite and suite.verdict == "measured"]


def _figures(suites: Sequence[SuiteResult]) -> _Figures:
    figures: _Figures = {}
    for suite in suites:
        for name, samples in _samples(suite.summary):
            figures.setdefault(name, []).append(samples)
    return figures


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
) -> ScoreDifference:
    noise = NOISE_FIRST if name.endswith(_FIRST) else NOISE
    if min(len(first), len(second)) >= RUNS:
        noise /= 2
        first_medians, second_medians = (
            [median(run) for run in first],
            [median(run) for run in second],
        )
    else:
        first_medians, second_medians = (
            list(itertools.chain(*first)),
            list(itertools.chain(*second)),
        )
    noise = max(noise, _restless(first_medians), _restless(second_medians))
    ratios = sorted(
        second_median / first_median
        for first_median in first_medians
        for second_median in second_medians
    )
    sizes = len(first_medians), len(second_medians)
    left_out_count = left_out(*sizes)
    low, high = (
        (ratios[left_out_count - 1], ratios[-left_out_count]) if left_out_count else (None, None)
    )
    few = "one sample" if 1 in sizes else f"{sizes[0]} and {sizes[1]} samples"
    verdict = _verdict(name, low, high, noise) or f"cannot tell: {few}"
    spreads = spread(first_medians) or {}, spread(second_medians) or {}
    return ScoreDifference(suite, name, *spreads, median(ratios), low, high, verdict)


def _restless(samples: Sequence[float]) -> float:
    """Return half the interquartile range as a share of the samples' median."""
    if len(samples) < 4:
        return 0.0
    low, middle, high = quantiles(samples, n=4)
    return (high - low) / middle / 2


def _verdict(name: str, low: float | None, high: float | None, noise: float) -> str | None:
    if low is None or high is None:
        return None
    if low <= 1 + noise and high >= 1 - noise:
        return "noise"
    last = name.rpartition(".")[2]
    if not last.endswith((*_HIGHER, "_s", "seconds", "invented")):
        return "differs"
    return "better" if (low > 1) == last.endswith(_HIGHER) else "worse"


def left_out(first: int, second: int) -> int:
    """Return how many ratios at each end lie outside the interval; 0 means too few samples.

    If both sets are samples of the same distribution, the number of pairs in which the second is
    ahead follows the Gaussian binomial coefficient.
    """
    ways = [1] + [0] * (first * second)
    for step in range(1, first + 1):
        for at in range(len(ways) - 1, second + step - 1, -1):
            ways[at] -= ways[at - second - step]
        for at in range(step, len(ways)):
            ways[at] += ways[at - step]
    below = list(itertools.accumulate(ways))
    return bisect_right(below, CHANCE / 2 * math.comb(first + second, first))
