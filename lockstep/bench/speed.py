"""Suites about speed: decode, prefill, concurrency, speculation.

Each suite runs in rounds: every level once, then all of them again. Any drift meanwhile is
therefore part of the spread of each level.
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
from lockstep.bench.sample import MOST_AT_ONCE, Ask, BenchSample
from lockstep.onhost.engines import Counters

# Article 002 measured 1.5K. The larger prompts show where attention begins to cost.
PREFILL_TOKENS = (1500, 6000, 24000)
STREAMS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Wave:
    """Requests that were sent at the same moment, and the seconds until all were answered."""

    samples: Sequence[BenchSample]
    seconds: float

    def mean(self, figure: Callable[[BenchSample], float | None]) -> float | None:
        """Return the mean of a figure over all samples, or None if one sample lacks it."""
        values = _all(map(figure, self.samples))
        return fmean(values) if values else None


Waves = Mapping[str, Sequence[Wave]]


def _first(sample: BenchSample) -> float | None:
    return sample.first_s if sample.tells_first_step else None


def _rounds(bench: Bench, levels: Mapping[str, Callable[[], list[Ask]]]) -> Waves:
    waves: dict[str, list[Wave]] = {level: [] for level in levels}
    for _ in bench.rounds():
        for level, asks in levels.items():
            waves[level].append(Wave(*bench.together(asks())))
    return waves


def _outcome(
    waves: Waves,
    summary: dict[str, Any],
    notes: Iterable[str] = (),
    extra: Sequence[BenchSample] = (),
) -> Outcome:
    samples = [
        *extra,
        *(sample for level in waves.values() for wave in level for sample in wave.samples),
    ]
    times = {level: [wave.seconds for wave in of_one] for level, of_one in waves.items()}
    firsts = {
        level: [first for wave in of_one if (first := wave.mean(_first))]
        for level, of_one in waves.items()
    }
    notes = list(notes)
    if late_tokens := [
        sample.first_tokens for sample in samples if sample.good and not sample.tells_first_step
    ]:
        most = (
            f"up to {max(late_tokens)} tokens came at once, more than a step brings "
            f"({MOST_AT_ONCE})"
        )
        why = "A parser holds them back, or this machine is busy"
        notes.insert(0, f"the time to the first token cannot be told: {most}. {why}")
    return Outcome(tuple(samples), summary, "", (steady(times, firsts),), tuple(notes))


def _ask(label: str, prompt: str, tokens: int) -> Ask:
    # Exactly this many tokens, even if the model would end earlier: a rate of few tokens is noise.
    return Ask(label, user(prompt), tokens, ignore_eos=True)


def _asks(label: str, prompts: Iterable[str], tokens: int) -> Callable[[], list[Ask]]:
    """Return one level of a suite: each round asks the same prompts with new marks."""
    every = list(prompts)
    return lambda: [_ask(label, prompt, tokens) for prompt in every]


def _spread(values: Iterable[float | None]) -> dict[str, Any] | None:
    """Return the spread of one sample per wave, as its answers share a fate; None if one lacks."""
    return spread(_all(values))


def _all(values: Iterable[float | None]) -> list[float]:
    """Return these values, or none of them if one is missing."""
    known_values = list(values)
    return (
        [value for value in known_values if value is not None] if None not in known_values else []
    )


def _figures(waves: Sequence[Wave]) -> dict[str, Any]:
    return {
        "decode_tok_s": _spread(wave.mean(lambda sample: sample.rate) for wave in waves),
        "after_first_tok_s": _spread(
            wave.mean(lambda sample: sample.decode_rate) for wave in waves
        ),
        "first_token_s": _spread(wave.mean(_first) for wave in waves),
    }


def decode(bench: Bench) -> Outcome:
    """Measure each prompt shape, one request at a time."""
    shapes = (TECHNICAL,) if bench.quick else tuple(SHAPES)
    levels = {shape: _asks(shape, [SHAPES[shape]], bench.tokens) for shape in shapes}
    waves = _rounds(bench, levels)
    by_shape = {shape: _figures(of_one) for shape, of_one in waves.items()}
    return _outcome(waves, {"tokens": bench.tokens, "by_shape": by_shape})


def prefill(bench: Bench) -> Outcome:
    """Measure the time to the first token of long prompts, in tokens of the prompt per second."""
    gauge = bench.ask(_ask("gauge", filler(200), 1))
    if not gauge.good or not gauge.prompt_tokens:
        return Outcome((gauge,), {}, refusal=gauge.refusal)
    per_word = gauge.prompt_tokens / 201
    context = bench.context or PREFILL_TOKENS[-1] * 2
    sizes = [size for size in PREFILL_TOKENS if size * 1.1 < context]
    if bench.quick:
        sizes = sizes[:1]
    if not sizes:
        why = f"the context of {context} tokens is shorter than {PREFILL_TOKENS[0]} tokens"
        return Outcome((gauge,), {}, refusal=why)

    def level(size: int) -> Callable[[], list[Ask]]:
        return lambda: [_ask(f"{size} tokens", filler(int(size / per_word)), 1)]

    waves = _rounds(bench, {f"{size} tokens": level(size) for size in sizes})
    sizes_left_out = [size for size in PREFILL_TOKENS if size not in sizes and not bench.quick]
    notes = (
        (f"not run: {sizes_left_out} tokens, the context is {context}",) if sizes_left_out else ()
    )
    by_size = {size: _prefill_figures(of_one) for size, of_one in waves.items()}
    return _outcome(waves, {"by_size": by_size}, notes, (gauge,))


def _prefill_figures(waves: Sequence[Wave]) -> dict[str, Any]:
    good = [(wave.samples[0].prompt_tokens or 0, wave.mean(_first)) for wave in waves]
    return {
        "prompt_tokens": fmean(tokens for tokens, _ in good),
        "first_token_s": _spread(first for _, first in good),
        "prefill_tok_s": _spread(tokens / first if first else None for tokens, first in good),
    }


def concurrency(bench: Bench) -> Outcome:
    """Measure 1, 2, 4 and 8 requests at the same moment."""
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
    return _outcome(waves, summary, _queue(bench.expectation.sequences))


def _together_tok_s(wave: Wave) -> float:
    tokens = sum(sample.tokens or 0 for sample in wave.samples)
    return tokens / wave.seconds if wave.seconds > 0 else 0.0


def _queue(most: int | None) -> Iterable[str]:
    if most is None:
        yield "how many requests the engine takes at a time is not known: of more, some queue"
    for streams in STREAMS:
        if most is not None and streams > most:
            queue_note = f"{streams - most} of {streams} streams queue"
            yield f"{queue_note}: the recipe lets the engine take {most} at a time (max_num_seqs)"


def speculation(bench: Bench) -> Outcome:
    """Count drafted and accepted tokens by prompt shape, from the engine's own counters."""
    samples: list[BenchSample] = []
    figures_by_shape: dict[str, list[dict[str, float]]] = {shape: [] for shape in SHAPES}
    first_counters = bench.settled_counters(None, 0)
    for _ in bench.rounds():
        for shape, prompt in SHAPES.items():
            samples.append(bench.ask(_ask(shape, prompt, bench.tokens)))
            last_counters = bench.settled_counters(first_counters, int(samples[-1].status == 200))
            if first_counters and last_counters:
                figures_by_shape[shape] += _draft_figures(first_counters, last_counters)
            first_counters = last_counters
    if first_counters is None:
        why = "the engine publishes no counters (--enable-metrics)"
        return Outcome(tuple(samples), {}, refusal=why)
    every = [figures for of_one in figures_by_shape.values() for figures in of_one]
    if not every:
        return Outcome(tuple(samples), {}, refusal="nothing was drafted: no speculation runs")
    by_shape = {shape: _speculation_figures(of_one) for shape, of_one in figures_by_shape.items()}
    totals = {
        name: sum(figures.get(name, 0) for figures in every)
        for name in ("drafted_tokens", "accepted_tokens")
    }
    summary = {
        "tokens": bench.tokens,
        **totals,
        **_speculation_figures(every),
        "by_shape": by_shape,
    }
    return Outcome(tuple(samples), summary)


def _draft_figures(first_counters: Counters, last_counters: Counters) -> Iterable[dict[str, float]]:
    """Yield the gain of drafting between two looks: tokens per step, with the large model's own.

    Yields nothing if no token was drafted. SGLang has a gauge of the last step and no totals.
    """
    names = ("drafts", "drafted_tokens", "accepted_tokens")
    totals = [(getattr(first_counters, name), getattr(last_counters, name)) for name in names]
    if any(None in pair for pair in totals):
        if last_counters.tokens_per_step:
            yield {"tokens_per_step": last_counters.tokens_per_step}
        return
    steps, drafted_tokens, accepted_tokens = (last - first for first, last in totals)
    if steps > 0 and drafted_tokens > 0:
        yield {
            "drafted_tokens": drafted_tokens,
            "accepted_tokens": accepted_tokens,
            "acceptance": accepted_tokens / drafted_tokens,
            "tokens_per_step": 1 + accepted_tokens / steps,
        }


def _speculation_figures(figures: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    return {
        name: _spread(figure.get(name) for figure in figures)
        for name in ("acceptance", "tokens_per_step")
    }
