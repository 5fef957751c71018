"""Suites about speed: decode, prefill, concurrency, speculation.

Each is measured in rounds: every level once, then all of them again. So what drifts meanwhile is in
the spread of each level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import fmean
from typing import Any

from lockstep.bench.prompts import SHAPES, TECHNICAL, filler, user
from lockstep.bench.results import spread
from lockstep.bench.ruler import steady
from lockstep.bench.run import Bench, Outcome
from lockstep.bench.sample import MOST_AT_ONCE, Ask, Sample
from lockstep.onhost.engines import Counters

# Article 002 measured 1.5K; the larger ones show where attention begins to cost.
PREFILL_TOKENS = (1500, 6000, 24000)
STREAMS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Wave:
    """Requests that were sent at the same moment, and the seconds until all were answered."""

    samples: Sequence[Sample]
    seconds: float

    def mean(self, figure: Callable[[Sample], float | None]) -> float | None:
        """Of all its samples; None where one of them cannot tell."""
        values = _all(map(figure, self.samples))
        return fmean(values) if values else None


Waves = Mapping[str, Sequence[Wave]]


def _first(sample: Sample) -> float | None:
    return sample.first_s if sample.told else None


def _rounds(bench: Bench, levels: Mapping[str, Callable[[], list[Ask]]]) -> Waves:
    waves: dict[str, list[Wave]] = {level: [] for level in levels}
    for _ in bench.rounds():
        for level, asks in levels.items():
            waves[level].append(Wave(*bench.together(asks())))
    return waves


def _outcome(
    waves: Waves, summary: dict[str, Any], notes: Iterable[str] = (), extra: Sequence[Sample] = ()
) -> Outcome:
    samples = [*extra, *(one for level in waves.values() for wave in level for one in wave.samples)]
    times = {level: [wave.seconds for wave in of_one] for level, of_one in waves.items()}
    firsts = {
        level: [first for wave in of_one if (first := wave.mean(_first))]
        for level, of_one in waves.items()
    }
    notes = list(notes)
    if held := [one.first_tokens for one in samples if one.good and not one.told]:
        most = f"up to {max(held)} tokens came at once, more than a step brings ({MOST_AT_ONCE})"
        why = "A parser holds them back, or this machine is busy"
        notes.insert(0, f"the time to the first token cannot be told: {most}. {why}")
    return Outcome(tuple(samples), summary, "", (steady(times, firsts),), tuple(notes))


def _ask(label: str, prompt: str, tokens: int) -> Ask:
    # Exactly so many tokens, also where the model would have ended: a rate of few is noise.
    return Ask(label, user(prompt), tokens, ignore_eos=True)


def _asks(label: str, prompts: Iterable[str], tokens: int) -> Callable[[], list[Ask]]:
    """One level of a suite: each round asks the same, with marks of its own."""
    every = list(prompts)
    return lambda: [_ask(label, prompt, tokens) for prompt in every]


def _spread(values: Iterable[float | None]) -> dict[str, Any] | None:
    """One sample per wave: the answers of a wave share its fate. None where one cannot be told."""
    return spread(_all(values))


def _all(values: Iterable[float | None]) -> list[float]:
    """These values, or none of them where one is missing."""
    found = list(values)
    return [value for value in found if value is not None] if None not in found else []


def _figures(waves: Sequence[Wave]) -> dict[str, Any]:
    return {
        "decode_tok_s": _spread(wave.mean(lambda one: one.rate) for wave in waves),
        "after_first_tok_s": _spread(wave.mean(lambda one: one.decode_rate) for wave in waves),
        "first_token_s": _spread(wave.mean(_first) for wave in waves),
    }


def decode(bench: Bench) -> Outcome:
    """Each prompt shape, one request at a time."""
    shapes = (TECHNICAL,) if bench.quick else tuple(SHAPES)
    levels = {shape: _asks(shape, [SHAPES[shape]], bench.tokens) for shape in shapes}
    waves = _rounds(bench, levels)
    by_shape = {shape: _figures(of_one) for shape, of_one in waves.items()}
    return _outcome(waves, {"tokens": bench.tokens, "by_shape": by_shape})


def prefill(bench: Bench) -> Outcome:
    """Time to the first token of long prompts, as tokens of the prompt per second."""
    gauge = bench.ask(_ask("gauge", filler(200), 1))
    if not gauge.good or not gauge.prompt_tokens:
        return Outcome((gauge,), {}, refused=gauge.refusal)
    per_word = gauge.prompt_tokens / 201
    context = bench.context or PREFILL_TOKENS[-1] * 2
    sizes = [size for size in PREFILL_TOKENS if size * 1.1 < context]
    if bench.quick:
        sizes = sizes[:1]
    if not sizes:
        why = f"the context of {context} tokens is shorter than {PREFILL_TOKENS[0]} tokens"
        return Outcome((gauge,), {}, refused=why)

    def level(size: int) -> Callable[[], list[Ask]]:
        return lambda: [_ask(f"{size} tokens", filler(int(size / per_word)), 1)]

    waves = _rounds(bench, {f"{size} tokens": level(size) for size in sizes})
    left = [size for size in PREFILL_TOKENS if size not in sizes and not bench.quick]
    notes = (f"not run: {left} tokens, the context is {context}",) if left else ()
    by_size = {size: _prefilled(of_one) for size, of_one in waves.items()}
    return _outcome(waves, {"by_size": by_size}, notes, (gauge,))


def _prefilled(waves: Sequence[Wave]) -> dict[str, Any]:
    good = [(wave.samples[0].prompt_tokens or 0, wave.mean(_first)) for wave in waves]
    return {
        "prompt_tokens": fmean(tokens for tokens, _ in good),
        "first_token_s": _spread(first for _, first in good),
        "prefill_tok_s": _spread(tokens / first if first else None for tokens, first in good),
    }


def concurrency(bench: Bench) -> Outcome:
    """1, 2, 4 and 8 requests at the same moment."""
    tokens = bench.tokens // 2
    levels = {
        str(streams): _asks(f"{streams} streams", islice(cycle(SHAPES.values()), streams), tokens)
        for streams in STREAMS
    }
    waves = _rounds(bench, levels)
    by_streams = {
        streams: {"total_tok_s": _spread(map(_together_tok_s, of_one)), **_figures(of_one)}
        for streams, of_one in waves.items()
    }
    summary = {"tokens": tokens, "by_streams": by_streams}
    return _outcome(waves, summary, _queue(bench.expected.sequences))


def _together_tok_s(wave: Wave) -> float:
    tokens = sum(sample.tokens or 0 for sample in wave.samples)
    return tokens / wave.seconds if wave.seconds > 0 else 0.0


def _queue(most: int | None) -> Iterable[str]:
    if most is None:
        yield "how many requests the engine takes at a time is not known: of more, some queue"
    for streams in STREAMS:
        if most is not None and streams > most:
            queued = f"{streams - most} of {streams} streams queue"
            yield f"{queued}: the recipe lets the engine take {most} at a time (max_num_seqs)"


def speculation(bench: Bench) -> Outcome:
    """Drafted and accepted tokens by prompt shape, from the engine's own counters."""
    samples: list[Sample] = []
    found: dict[str, list[dict[str, float]]] = {shape: [] for shape in SHAPES}
    before = bench.settled(None, 0)
    for _ in bench.rounds():
        for shape, prompt in SHAPES.items():
            samples.append(bench.ask(_ask(shape, prompt, bench.tokens)))
            after = bench.settled(before, int(samples[-1].status == 200))
            if before and after:
                found[shape] += _drafted(before, after)
            before = after
    if before is None:
        why = "the engine publishes no counters (--enable-metrics)"
        return Outcome(tuple(samples), {}, refused=why)
    every = [one for of_one in found.values() for one in of_one]
    if not every:
        return Outcome(tuple(samples), {}, refused="nothing was drafted: no speculation runs")
    by_shape = {shape: _speculated(of_one) for shape, of_one in found.items()}
    totals = {name: sum(one.get(name, 0) for one in every) for name in ("drafted", "accepted")}
    summary = {"tokens": bench.tokens, **totals, **_speculated(every), "by_shape": by_shape}
    return Outcome(tuple(samples), summary)


def _drafted(before: Counters, after: Counters) -> Iterable[dict[str, float]]:
    """What drafting brought between two looks: tokens per step, the large model's own included.

    Nothing where no token was drafted. SGLang has a gauge of the last and no totals.
    """
    names = ("drafts", "drafted", "accepted")
    totals = [(getattr(before, name), getattr(after, name)) for name in names]
    if any(None in pair for pair in totals):
        if after.tokens_per_step:
            yield {"tokens_per_step": after.tokens_per_step}
        return
    steps, drafted, accepted = (last - first for first, last in totals)
    if steps > 0 and drafted > 0:
        yield {
            "drafted": drafted,
            "accepted": accepted,
            "acceptance": accepted / drafted,
            "tokens_per_step": 1 + accepted / steps,
        }


def _speculated(found: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    return {
        name: _spread(one.get(name) for one in found) for name in ("acceptance", "tokens_per_step")
    }
