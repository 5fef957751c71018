"""Self-checks: pure judgements of the readings before, during and after a suite.

A harness error is never a model failure. One suspect check, and the suite has no score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lockstep.bench.look import Look
from lockstep.bench.sample import Sample

Verdict = Literal["ok", "suspect", "unread", "waived"]
_Judged = tuple[Verdict, str]

# Two clocks of one machine drift apart by far less within a suite; a jump is a second and more.
MOST_DRIFT_S = 0.5
# Beside a resting engine: what the desktop and the monitors of a Spark may take.
MOST_BUSY = 0.25
# Identical to this share, and more of them than chance makes: no clock has measured these.
SAME_TIME = 1e-6
FEWEST_FOR_SAME = 3
# The slowest of some repeats may take half as long again as the fastest (three runs of article 004
# were 19 % apart; a kernel that was compiled in one of them doubled it), and its first token twice
# as long (0.16 to 0.26 s was seen for eight streams); or a tenth of a second more where all are
# short: a scheduler's hiccup.
MOST_RATIO, MOST_RATIO_FIRST, HICCUP_S = 1.5, 2.0, 0.1
# 273 GB/s (NVIDIA's data sheet of the Spark, 2025) over 0.1 GB per token: no model of the catalogue
# reads less than a gigabyte. Where neither the model nor the machine is known.
FASTEST_TOK_S = 2730.0


@dataclass(frozen=True)
class Check:
    """One judgement.

    Attributes:
        verdict: "unread": this engine or host does not say; "waived": suspect, and accepted.
        detail: What was expected and what was found.
    """

    name: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True)
class Expected:
    """What the ruler is to find.

    Attributes:
        model: Name in the engine's API.
        unit: Unit that is to be hot, None without a host.
        generation: What it is to have been started with by inventory and lock, None: not known.
        ceiling_tok_s: Fastest decode of one stream that the memory's bandwidth allows, tok/s;
            None: the catalogue does not know the machine.
        sequences: Most requests that the engine takes at a time, None: not known.
    """

    model: str
    unit: str | None = None
    generation: str | None = None
    ceiling_tok_s: float | None = FASTEST_TOK_S
    sequences: int | None = None


def judge(
    before: Look, after: Look, samples: Sequence[Sample], expected: Expected, canaries: int
) -> list[Check]:
    """Every check of one suite.

    Args:
        before: Taken after the first canary.
        after: Taken before the last canary.
        samples: Every request between them.
        canaries: How many of the two canaries sang.
    """
    answered = sum(sample.status == 200 for sample in samples)
    tokens = sum(sample.tokens or 0 for sample in samples)
    judged = {
        "canary": _canary(canaries),
        "model": _model(before, after, expected),
        "lock": _lock(before, after, expected),
        "requests": _counted(before, after, "requests", "finished", answered),
        "tokens": _counted(before, after, "tokens", "generated", tokens),
        "alone": _alone(before, after),
        "quiet": _quiet(before),
        "cool": _cool(before, after),
        "compiled": _compiled(before, after),
        "clocks": _clocks(before, after, samples),
        "answers": _answers(samples),
        "same": _same(samples),
        "bandwidth": _bandwidth(samples, expected),
    }
    return [Check(name, verdict, detail) for name, (verdict, detail) in judged.items()]


def waive(checks: Iterable[Check], names: Iterable[str]) -> list[Check]:
    """Suspect checks of these names as waived; they stay visible."""
    accepted = [("suspect", name) for name in names]
    return [
        replace(check, verdict="waived") if (check.verdict, check.name) in accepted else check
        for check in checks
    ]


def steady(whole: Mapping[str, Sequence[float]], first: Mapping[str, Sequence[float]]) -> Check:
    """Whether repeats took about as long as each other.

    Args:
        whole: What was repeated → seconds of each repeat.
        first: The same to the first token.
    """
    named = {f"first token, {what}": seconds for what, seconds in first.items()}
    for times, ratio in ((whole, MOST_RATIO), (named, MOST_RATIO_FIRST)):
        for what, seconds in times.items():
            least, most = min(seconds, default=0.0), max(seconds, default=0.0)
            if most > least * ratio and most > least + HICCUP_S:
                found = f"{what}: repeats took {least:.2f} to {most:.2f} s. Measure again"
                return Check("steady", "suspect", found)
    return Check("steady", "ok", f"repeats took at most {MOST_RATIO:g} times the fastest")


def _canary(canaries: int) -> _Judged:
    if canaries == 2:
        return "ok", "a token with text before and after"
    return "suspect", f"{canaries} of 2 canaries answered with a token"


def _model(before: Look, after: Look, expected: Expected) -> _Judged:
    for when, seen in (("before", before), ("after", after)):
        if expected.model not in seen.models:
            names = ", ".join(seen.models)
            return "suspect", f"expected {expected.model!r}, {when} it is {names or 'none'}"
    if (before.root, before.version) != (after.root, after.version):
        return "suspect", "the engine behind this port changed during the suite"
    return "ok", f"{expected.model} on engine {before.version or 'of no version'}"


def _lock(before: Look, after: Look, expected: Expected) -> _Judged:
    first, last = before.host, after.host
    if first is None or last is None:
        return "unread", "without a host there is no lock to compare with"
    if expected.unit and first.hot != expected.unit:
        return "suspect", f"expected {expected.unit}, hot is {first.hot or 'none'}"
    if (first.hot, first.started) != (last.hot, last.started):
        return "suspect", f"{first.hot} was started again during the suite"
    wanted = expected.generation or first.written
    if not wanted or not first.generation:
        return "unread", "the host does not say what its engine was started with"
    if first.generation != wanted:
        by = "inventory and lock" if expected.generation else "its unit file"
        found = f"the engine runs {first.generation}: deploy first"
        return "suspect", f"{by} ask for generation {wanted}, {found}"
    return "ok", f"generation {first.generation}"


def _counted(
    before: Look, after: Look, name: str, total: Literal["finished", "generated"], sent: int
) -> _Judged:
    """The engine's own total moved by what came here: requests, or tokens."""
    first, last = (getattr(seen.counters, total, None) for seen in (before, after))
    if first is None or last is None:
        return "unread", f"the engine does not count {name} (--enable-metrics)"
    moved = last - first
    if moved == sent:
        return "ok", f"{sent} {name} came, and the engine counted {moved}"
    why = "somebody else asks it, or something between here and it answers instead"
    return "suspect", f"{sent} {name} came, but the engine counted {moved}: {why}"


def _alone(before: Look, after: Look) -> _Judged:
    if before.counters is None or after.counters is None:
        return "unread", "the engine publishes no counters (--enable-metrics)"
    others = max(before.counters.outstanding, after.counters.outstanding)
    if others:
        return "suspect", f"{others} request(s) of somebody else are in the engine"
    return "ok", "no other request before and after"


def _quiet(before: Look) -> _Judged:
    busy = before.host.busy if before.host else None
    if busy is None:
        return "unread", "the host's processors cannot be read"
    found = f"processors {busy:.0%} busy beside a resting engine, at most {MOST_BUSY:.0%}"
    return ("suspect" if busy > MOST_BUSY else "ok"), found


def _cool(before: Look, after: Look) -> _Judged:
    looks = [seen.host for seen in (before, after) if seen.host]
    degrees = [seen.temperature_c for seen in looks if seen.temperature_c is not None]
    if not degrees:
        return "unread", "the GPU's temperature cannot be read"
    clocks = [f"{seen.sm_mhz:.0f}" for seen in looks if seen.sm_mhz is not None]
    found = f"{' → '.join(f'{value:.0f}' for value in degrees)} °C"
    found += f", {' → '.join(clocks)} MHz" if clocks else ""
    if any(seen.throttled for seen in looks):
        return "suspect", f"the GPU is slowed down by heat or power: {found}"
    return "ok", found


def _compiled(before: Look, after: Look) -> _Judged:
    lines = [seen.host.compiled for seen in (before, after) if seen.host]
    if len(lines) < 2 or None in lines:
        return "unread", "the engine's log cannot be read, or does not say it"
    if lines[1] and lines[0] != lines[1]:
        return "suspect", f"requests waited for a compiler: {lines[1]}"
    return "ok", "no kernel was compiled meanwhile"


def _clocks(before: Look, after: Look, samples: Sequence[Sample]) -> _Judged:
    drift = (after.wall - before.wall) - (after.now - before.now)
    if abs(drift) > MOST_DRIFT_S:
        return "suspect", f"the wall clock jumped by {drift:+.1f} s, or the machine slept"
    if after.now <= before.now or any(sample.seconds <= 0 for sample in samples):
        return "suspect", "an answer came before it was asked for"
    return "ok", f"wall and running clock agree within {abs(drift):.2f} s"


def _answers(samples: Sequence[Sample]) -> _Judged:
    faults = [sample.fault for sample in samples if sample.fault]
    if not samples:
        return "suspect", "nothing was sent"
    if faults:
        return "suspect", f"{len(faults)} of {len(samples)}: {faults[0]}"
    short = [s for s in samples if s.good and s.finish == "length" and (s.tokens or 0) < s.asked]
    if short:
        found = f"{short[0].tokens} of {short[0].asked} tokens"
        return "suspect", f"truncated: ended by length after {found}"
    return "ok", f"{len(samples)} complete"


def _same(samples: Sequence[Sample]) -> _Judged:
    good = [sample for sample in samples if sample.good]
    labels, texts = {sample.label for sample in good}, {sample.text for sample in good}
    long_enough = all((sample.tokens or 0) >= 32 and sample.text for sample in good)
    if len(labels) >= FEWEST_FOR_SAME and len(texts) == 1 and long_enough:
        return "suspect", f"{len(labels)} different prompts, one answer"
    times = [sample.seconds for sample in good]
    if len(times) >= FEWEST_FOR_SAME and max(times) - min(times) <= SAME_TIME * max(times):
        return "suspect", f"{len(times)} answers took exactly {times[0]:.6f} s each"
    return "ok", "answers and times differ"


def _bandwidth(samples: Sequence[Sample], expected: Expected) -> _Judged:
    streamed = [s for s in samples if s.good and s.first_s is not None and (s.tokens or 0) > 16]
    if not streamed:
        return "unread", "no streamed answer of more than 16 tokens"
    if expected.ceiling_tok_s is None:
        return "unread", "the catalogue has no hardware like this host's"
    fastest = max(sample.decode_rate or sample.rate for sample in streamed)
    found = f"fastest {fastest:.1f} tok/s, memory allows {expected.ceiling_tok_s:.0f} tok/s"
    return ("suspect" if fastest > expected.ceiling_tok_s else "ok"), found
