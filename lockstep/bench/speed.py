"""Suites about speed: decode, prefill, concurrency, speculation."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lockstep.bench import counters
from lockstep.bench.prompts import SHAPES, TECHNICAL, filler, user
from lockstep.bench.results import spread
from lockstep.bench.run import Bench, Outcome
from lockstep.bench.sample import Ask, Sample
from lockstep.onhost.rollout.technical import RUNS, TOKENS

# Article 002 measured 1.5K; the larger ones show where attention begins to cost.
PREFILL_TOKENS = (1500, 6000, 24000)
STREAMS = (1, 2, 4, 8)
_QUICK_TOKENS = 64


def decode(bench: Bench) -> Outcome:
    """Three runs of each prompt shape, one request at a time."""
    shapes = (TECHNICAL,) if bench.quick else tuple(SHAPES)
    samples = [_decoded(bench, shape) for shape in shapes for _ in range(RUNS)]
    by_shape = {shape: _figures(s for s in samples if s.label == shape) for shape in shapes}
    return Outcome(tuple(samples), {**by_shape[TECHNICAL], "by_shape": by_shape})


def _decoded(bench: Bench, shape: str) -> Sample:
    # Exactly so many tokens, also where the model would have ended: a rate of few is noise.
    return bench.ask(_ask(bench, shape, SHAPES[shape], TOKENS))


def _ask(bench: Bench, label: str, prompt: str, tokens: int) -> Ask:
    return Ask(label, user(prompt), tokens, ignore_eos=True, timeout_s=bench.timeout_s)


def _figures(samples: Iterable[Sample]) -> dict[str, Any]:
    good = [sample for sample in samples if sample.good]
    rates = [sample.decode_rate for sample in good]
    return {
        "decode_tok_s": spread([sample.rate for sample in good]),
        "after_first_tok_s": spread([rate for rate in rates if rate is not None]),
        "first_token_s": spread([s.first_s for s in good if s.first_s is not None]),
    }


def prefill(bench: Bench) -> Outcome:
    """Time to the first token of long prompts, as tokens of the prompt per second."""
    gauge = bench.ask(_ask(bench, "gauge", filler(200), 1))
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
    samples = [gauge]
    for size in sizes:
        for _ in range(RUNS - 1):
            samples.append(
                bench.ask(_ask(bench, f"{size} tokens", filler(int(size / per_word)), 1))
            )
    left = [size for size in PREFILL_TOKENS if size not in sizes and not bench.quick]
    notes = (f"not run: {left} tokens, the context is {context}",) if left else ()
    by_size = {
        f"{size} tokens": _prefilled(s for s in samples if s.label == f"{size} tokens")
        for size in sizes
    }
    return Outcome(tuple(samples), {"by_size": by_size}, notes=notes)


def _prefilled(samples: Iterable[Sample]) -> dict[str, Any]:
    good = [s for s in samples if s.good and s.first_s and s.prompt_tokens]
    rates = [s.prompt_tokens / s.first_s for s in good if s.prompt_tokens and s.first_s]
    return {
        "prompt_tokens": spread([float(s.prompt_tokens or 0) for s in good]),
        "first_token_s": spread([s.first_s for s in good if s.first_s is not None]),
        "prefill_tok_s": spread(rates),
    }


def concurrency(bench: Bench) -> Outcome:
    """1, 2, 4 and 8 requests at the same moment."""
    samples: list[Sample] = []
    by_streams: dict[str, Any] = {}
    for streams in STREAMS:
        found, seconds = _together(bench, streams)
        samples += found
        good = [sample for sample in found if sample.good]
        by_streams[str(streams)] = {
            "total_tok_s": sum(s.tokens or 0 for s in good) / seconds if seconds > 0 else 0.0,
            "each_tok_s": spread([sample.rate for sample in good]),
            "first_token_s": spread([s.first_s for s in good if s.first_s is not None]),
        }
    return Outcome(tuple(samples), {"by_streams": by_streams})


def _together(bench: Bench, streams: int) -> tuple[list[Sample], float]:
    gate = threading.Barrier(streams)
    tokens = _QUICK_TOKENS if bench.quick else TOKENS // 2

    def one(number: int) -> Sample:
        label = f"{streams} streams"
        shape = list(SHAPES.values())[number % len(SHAPES)]
        ask = _ask(bench, label, shape, tokens)
        gate.wait()
        return bench.ask(ask)

    began = bench.client.clock.now()
    with ThreadPoolExecutor(streams) as pool:
        found = list(pool.map(one, range(streams)))
    return found, bench.client.clock.now() - began


def speculation(bench: Bench) -> Outcome:
    """Drafted and accepted tokens by prompt shape, from the engine's own counters."""
    samples: list[Sample] = []
    by_shape: dict[str, Any] = {}
    drafting = False
    before = bench.settled(None, 0)
    for shape in SHAPES:
        samples.append(_decoded(bench, shape))
        after = bench.settled(before, int(samples[-1].status == 200))
        if before and after:
            found = counters.speculation(before, after)
            drafting |= found is not None
            by_shape[shape] = _speculated(found, samples[-1])
        before = after
    if before is None:
        why = "the engine publishes no counters (--enable-metrics)"
        return Outcome(tuple(samples), {}, refused=why)
    if not drafting:
        return Outcome(tuple(samples), {}, refused="nothing was drafted: no speculation runs")
    return Outcome(tuple(samples), {**_total(by_shape), "by_shape": by_shape})


def _speculated(found: counters.Speculation | None, sample: Sample) -> dict[str, Any]:
    values: Mapping[str, Any] = vars(found) if found else {}
    return {**values, "decode_tok_s": round(sample.rate, 2)}


def _total(by_shape: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    drafted = sum(shape.get("drafted") or 0 for shape in by_shape.values())
    accepted = sum(shape.get("accepted") or 0 for shape in by_shape.values())
    steps = [s["tokens_per_step"] for s in by_shape.values() if s.get("tokens_per_step")]
    return {
        "drafted": drafted or None,
        "accepted": accepted if drafted else None,
        "acceptance": round(accepted / drafted, 4) if drafted else None,
        "tokens_per_step": spread(steps),
    }
