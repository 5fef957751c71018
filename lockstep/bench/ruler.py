"""Self-checks: pure judgements of the readings before, during and after a suite.

A fault of the harness is never a fault of the model. One suspect check takes the score away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lockstep.bench.look import HostLoad
from lockstep.bench.sample import BenchSample

Verdict = Literal["ok", "suspect", "unread", "waived"]
_Verdict = tuple[Verdict, str]

# Two clocks of one machine drift by far less than this within a suite. A jump is a second or more.
MOST_DRIFT_S = 0.5
# The share that the desktop and the monitors of a Spark may take beside a resting engine.
MOST_BUSY = 0.25
# Durations that agree to this share, in more samples than chance makes, come from no clock.
SAME_TIME = 1e-6
FEWEST_FOR_SAME = 3
# The slowest of some repeats may take 1.5 times as long as the fastest: three runs of article 004
# were 19 % apart, and a kernel that was compiled in one of them doubled it. Its first token may
# take twice as long: 0.16 to 0.26 s was seen for eight streams. Where all are short, a tenth of a
# second more is allowed for a hiccup of the scheduler.
MOST_RATIO, MOST_RATIO_FIRST, HICCUP_S = 1.5, 2.0, 0.1
# 273 GB/s (NVIDIA's data sheet of the Spark, 2025) over 0.1 GB per token: no model of the catalogue
# reads less than a gigabyte. Used if neither the model nor the machine is known.
FASTEST_TOK_S = 2730.0


@dataclass(frozen=True)
class Check:
    """One judgement.

    Attributes:
        verdict: "unread": this engine or host does not say; "waived": suspect, and accepted.
        detail: The expected and the found value.
    """

    name: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True)
class ExpectedFigures:
    """The values that the ruler expects.

    Attributes:
        model: The name in the engine's API.
        unit: The unit that should be hot, or None without a host.
        restart_key: Its restart key by inventory and lock, or None if unknown.
        ceiling_tok_s: Fastest decode of one stream that the memory's bandwidth allows, tok/s;
            None: the catalogue does not know the machine.
        sequences: Most requests that the engine takes at a time, or None if unknown.
    """

    model: str
    unit: str | None = None
    restart_key: str | None = None
    ceiling_tok_s: float | None = FASTEST_TOK_S
    sequences: int | None = None


def judge(
    first_look: HostLoad,
    last_look: HostLoad,
    samples: Sequence[BenchSample],
    expectation: ExpectedFigures,
    test_answers: int,
) -> list[Check]:
    """Return every check of one suite.

    Args:
        first_look: The reading after the first test question.
        last_look: The reading before the last test question.
        samples: Every request between the two readings.
        test_answers: How many of the two test questions were answered.
    """
    answer_count = sum(sample.status == 200 for sample in samples)
    tokens = sum(sample.tokens or 0 for sample in samples)
    verdicts = {
        "test_question": _test_question(test_answers),
        "model": _model(first_look, last_look, expectation),
        "lock": _lock(first_look, last_look, expectation),
        "requests": _judge_count(
            first_look, last_look, "requests", "finished_requests", answer_count
        ),
        "tokens": _judge_count(first_look, last_look, "tokens", "generated_tokens", tokens),
        "alone": _alone(first_look, last_look),
        "quiet": _quiet(first_look),
        "cool": _cool(first_look, last_look),
        "compiled": _judge_compiling(first_look, last_look),
        "clocks": _clocks(first_look, last_look, samples),
        "answers": _answers(samples),
        "same": _judge_sameness(samples),
        "bandwidth": _bandwidth(samples, expectation),
    }
    return [Check(name, verdict, detail) for name, (verdict, detail) in verdicts.items()]


def waive(checks: Iterable[Check], names: Iterable[str]) -> list[Check]:
    """Return the checks with suspect ones of these names marked as waived; they stay visible."""
    accepted_names = [("suspect", name) for name in names]
    return [
        replace(check, verdict="waived") if (check.verdict, check.name) in accepted_names else check
        for check in checks
    ]


def steady(whole: Mapping[str, Sequence[float]], first: Mapping[str, Sequence[float]]) -> Check:
    """Check that repeats took about as long as each other.

    Args:
        whole: The seconds of each repeat, by what was repeated.
        first: The seconds to the first token, likewise.
    """
    times_by_name = {
        f"first token, {prompt_name}": seconds for prompt_name, seconds in first.items()
    }
    for times, ratio in ((whole, MOST_RATIO), (times_by_name, MOST_RATIO_FIRST)):
        for prompt_name, seconds in times.items():
            least, most = min(seconds, default=0.0), max(seconds, default=0.0)
            if most > least * ratio and most > least + HICCUP_S:
                finding = f"{prompt_name}: repeats took {least:.2f} to {most:.2f} s. Measure again"
                return Check("steady", "suspect", finding)
    return Check("steady", "ok", f"repeats took at most {MOST_RATIO:g} times the fastest")


def _test_question(test_answers: int) -> _Verdict:
    if test_answers == 2:
        return "ok", "a token with text before and after"
    return "suspect", f"{test_answers} of 2 test questions got a token"


def _model(first_look: HostLoad, last_look: HostLoad, expectation: ExpectedFigures) -> _Verdict:
    for when, engine_look in (("before", first_look), ("after", last_look)):
        if expectation.model not in engine_look.models:
            names = ", ".join(engine_look.models)
            return "suspect", f"expected {expectation.model!r}, {when} it is {names or 'none'}"
    if (first_look.root, first_look.version) != (last_look.root, last_look.version):
        return "suspect", "the engine behind this port changed during the suite"
    return "ok", f"{expectation.model} on engine {first_look.version or 'of no version'}"


def _lock(first_look: HostLoad, last_look: HostLoad, expectation: ExpectedFigures) -> _Verdict:
    first, last = first_look.host, last_look.host
    if first is None or last is None:
        return "unread", "without a host there is no lock to compare with"
    if expectation.unit and first.hot != expectation.unit:
        return "suspect", f"expected {expectation.unit}, hot is {first.hot or 'none'}"
    if (first.hot, first.start_id) != (last.hot, last.start_id):
        return "suspect", f"{first.hot} was started again during the suite"
    wanted_key = expectation.restart_key or first.file_restart_key
    if not wanted_key or not first.restart_key:
        return "unread", "the host does not say what its engine was started with"
    if first.restart_key != wanted_key:
        by = "inventory and lock" if expectation.restart_key else "its unit file"
        finding = f"the engine runs {first.restart_key}: deploy first"
        return "suspect", f"{by} ask for restart key {wanted_key}, {finding}"
    return "ok", f"restart key {first.restart_key}"


def _judge_count(
    first_look: HostLoad,
    last_look: HostLoad,
    name: str,
    total: Literal["finished_requests", "generated_tokens"],
    sent_count: int,
) -> _Verdict:
    """Compare the engine's own total of requests or tokens with those that came here."""
    first, last = (
        getattr(engine_look.counters, total, None) for engine_look in (first_look, last_look)
    )
    if first is None or last is None:
        return "unread", f"the engine does not count {name} (--enable-metrics)"
    difference = last - first
    if difference == sent_count:
        return "ok", f"{sent_count} {name} came, and the engine counted {difference}"
    why = "somebody else asks it, or something between here and it answers instead"
    return "suspect", f"{sent_count} {name} came, but the engine counted {difference}: {why}"


def _alone(first_look: HostLoad, last_look: HostLoad) -> _Verdict:
    if first_look.counters is None or last_look.counters is None:
        return "unread", "the engine publishes no counters (--enable-metrics)"
    other_requests = max(first_look.counters.outstanding, last_look.counters.outstanding)
    if other_requests:
        return "suspect", f"{other_requests} request(s) of somebody else are in the engine"
    return "ok", "no other request before and after"


def _quiet(first_look: HostLoad) -> _Verdict:
    busy = first_look.host.busy if first_look.host else None
    if busy is None:
        return "unread", "the host's processors cannot be read"
    finding = f"processors {busy:.0%} busy beside a resting engine, at most {MOST_BUSY:.0%}"
    return ("suspect" if busy > MOST_BUSY else "ok"), finding


def _cool(first_look: HostLoad, last_look: HostLoad) -> _Verdict:
    looks = [engine_look.host for engine_look in (first_look, last_look) if engine_look.host]
    degrees = [
        engine_look.temperature_c for engine_look in looks if engine_look.temperature_c is not None
    ]
    if not degrees:
        return "unread", "the GPU's temperature cannot be read"
    clocks = [
        f"{engine_look.sm_mhz:.0f}" for engine_look in looks if engine_look.sm_mhz is not None
    ]
    finding = f"{' → '.join(f'{value:.0f}' for value in degrees)} °C"
    finding += f", {' → '.join(clocks)} MHz" if clocks else ""
    if any(engine_look.is_throttled for engine_look in looks):
        return "suspect", f"the GPU is slowed down by heat or power: {finding}"
    return "ok", finding


def _judge_compiling(first_look: HostLoad, last_look: HostLoad) -> _Verdict:
    lines = [
        engine_look.host.compiler_line
        for engine_look in (first_look, last_look)
        if engine_look.host
    ]
    if len(lines) < 2 or None in lines:
        return "unread", "the engine's log cannot be read, or does not say it"
    if lines[1] and lines[0] != lines[1]:
        return "suspect", f"requests waited for a compiler: {lines[1]}"
    return "ok", "no kernel was compiled meanwhile"


def _clocks(first_look: HostLoad, last_look: HostLoad, samples: Sequence[BenchSample]) -> _Verdict:
    drift = (last_look.wall - first_look.wall) - (last_look.now - first_look.now)
    if abs(drift) > MOST_DRIFT_S:
        return "suspect", f"the wall clock jumped by {drift:+.1f} s, or the machine slept"
    if last_look.now <= first_look.now or any(sample.seconds <= 0 for sample in samples):
        return "suspect", "an answer came before it was asked for"
    return "ok", f"wall and running clock agree within {abs(drift):.2f} s"


def _answers(samples: Sequence[BenchSample]) -> _Verdict:
    faults = [sample.fault for sample in samples if sample.fault]
    if not samples:
        return "suspect", "nothing was sent"
    if faults:
        return "suspect", f"{len(faults)} of {len(samples)}: {faults[0]}"
    short = [
        s for s in samples if s.good and s.finish == "length" and (s.tokens or 0) < s.max_tokens
    ]
    if short:
        finding = f"{short[0].tokens} of {short[0].max_tokens} tokens"
        return "suspect", f"truncated: ended by length after {finding}"
    return "ok", f"{len(samples)} complete"


def _judge_sameness(samples: Sequence[BenchSample]) -> _Verdict:
    good = [sample for sample in samples if sample.good]
    labels, texts = {sample.label for sample in good}, {sample.text for sample in good}
    long_enough = all((sample.tokens or 0) >= 32 and sample.text for sample in good)
    if len(labels) >= FEWEST_FOR_SAME and len(texts) == 1 and long_enough:
        return "suspect", f"{len(labels)} different prompts, one answer"
    times = [sample.seconds for sample in good]
    if len(times) >= FEWEST_FOR_SAME and max(times) - min(times) <= SAME_TIME * max(times):
        return "suspect", f"{len(times)} answers took exactly {times[0]:.6f} s each"
    return "ok", "answers and times differ"


def _bandwidth(samples: Sequence[BenchSample], expectation: ExpectedFigures) -> _Verdict:
    streamed_samples = [
        s for s in samples if s.good and s.first_s is not None and (s.tokens or 0) > 16
    ]
    if not streamed_samples:
        return "unread", "no streamed answer of more than 16 tokens"
    if expectation.ceiling_tok_s is None:
        return "unread", "the catalogue has no hardware like this host's"
    fastest = max(sample.decode_rate or sample.rate for sample in streamed_samples)
    finding = f"fastest {fastest:.1f} tok/s, memory allows {expectation.ceiling_tok_s:.0f} tok/s"
    return ("suspect" if fastest > expectation.ceiling_tok_s else "ok"), finding
