"""One run: suites one after the other, each between two readings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import sleep
from typing import Any

from lockstep.bench.client import Client, Unreachable
from lockstep.bench.look import AskHost, look
from lockstep.bench.prompts import user
from lockstep.bench.results import ResultError, SuiteResult, Verdict
from lockstep.bench.ruler import Check, Expected, judge, waive
from lockstep.bench.sample import Ask, Sample
from lockstep.onhost import engines
from lockstep.onhost.rollout.technical import TOKENS

# An engine publishes what it counted within a step or two of its own; this only bounds a wait.
SETTLE_S = 2.0
# One answer of an engine that is loaded and alone takes seconds.
CANARY_S = 60.0
# Rounds are repeated until this time has passed, and fewer only where these already took longer.
ENOUGH_S, FEWEST_ROUNDS = 180.0, 5


@dataclass(frozen=True)
class Outcome:
    """What a suite brings home, as `SuiteResult` has it; `checks` are those of its own."""

    samples: tuple[Sample, ...]
    summary: dict[str, Any]
    refused: str = ""
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class Bench:
    """What every suite works with.

    Attributes:
        client: Of the engine itself.
        waived: Names of checks that do not take a score away.
        api: Client of the API's own port, where the gateway stands before the engine.
        vision_tensors: Vision tensors in the weight map, None where it is not known.
        quick: Fewer prompts: for a gate, and for tests.
        repeats: Rounds of a suite about speed, where they take less than `ENOUGH_S`.
        tokens: Length of an answer whose speed is measured.
        tell: Gets a line as each request ends.
    """

    client: Client
    expected: Expected
    ask_host: AskHost | None = None
    waived: tuple[str, ...] = ()
    api: Client | None = None
    vision_tensors: int | None = None
    context: int | None = None
    quick: bool = False
    repeats: int = 10
    tokens: int = TOKENS
    tell: Callable[[str], None] = field(default=lambda line: None)

    def ask(self, ask: Ask) -> Sample:
        """One request to the engine."""
        return self.together([ask])[0][0]

    def together(self, asks: Sequence[Ask]) -> tuple[list[Sample], float]:
        """Requests of the same moment to the engine, and the seconds until all are answered."""
        samples, seconds = self.client.together(asks)
        for sample in samples:
            self.tell(_line(sample))
        return samples, seconds

    def rounds(self) -> Iterator[int]:
        """The rounds of a suite about speed: `repeats`, or as many as `ENOUGH_S` holds."""
        began = self.client.clock.now()
        for number in range(self.repeats):
            if number >= FEWEST_ROUNDS and self.client.clock.now() - began > ENOUGH_S:
                return
            yield number

    def settled(self, before: engines.Counters | None, samples: int) -> engines.Counters | None:
        """The counters once the engine has counted what it answered, or after a while anyhow.

        Raises:
            Unreachable: the engine does not answer.
        """
        for _ in range(20):
            seen = engines.counters(self.client.get("/metrics") or "")
            if not _behind(before, seen, samples):
                break
            sleep(SETTLE_S / 20)
        return seen


@dataclass(frozen=True)
class Suite:
    """What is measured between two looks.

    Attributes:
        warm: Whether a round that does not count comes first: an engine compiles kernels at the
            first request of a shape.
    """

    name: str
    run: Callable[[Bench], Outcome]
    warm: bool = False


def measure(bench: Bench, suite: Suite) -> SuiteResult:
    """Run one suite between two looks. Never raises for what the engine does."""
    try:
        sung = _sings(bench)
        if suite.warm:
            suite.run(replace(bench, repeats=1, tell=lambda line: bench.tell(f"warm-up, {line}")))
        bench.settled(None, 0)
        before = look(bench.client, bench.ask_host)
        outcome = suite.run(bench)
        answered = sum(sample.status == 200 for sample in outcome.samples)
        bench.settled(before.counters, answered)
        after = look(bench.client, bench.ask_host)
        sung += _sings(bench)
    except (Unreachable, ResultError) as fault:
        check = Check("engine", "suspect", f"engine or host do not answer: {fault}")
        return SuiteResult(suite.name, "suspect", checks=(check,))
    found = judge(before, after, outcome.samples, bench.expected, sung)
    checks = waive([*found, *outcome.checks], bench.waived)
    verdict: Verdict = "refused" if outcome.refused else "measured"
    if any(check.verdict == "suspect" for check in checks):
        verdict = "suspect"
    return SuiteResult(
        suite.name,
        verdict,
        # A suspect ruler gives no score, not even one with a remark.
        outcome.summary if verdict == "measured" else {},
        outcome.refused,
        tuple(checks),
        outcome.samples,
        outcome.notes,
    )


def _sings(bench: Bench) -> int:
    limit = min(CANARY_S, bench.client.timeout_s)
    ask = Ask("canary", user("Say hello."), 16, stream=False, timeout_s=limit)
    return int(bench.client.complete(ask).good)


def _behind(before: engines.Counters | None, seen: engines.Counters | None, samples: int) -> bool:
    if seen is None:
        return False
    if seen.outstanding:
        return True
    if before is None or before.finished is None or seen.finished is None:
        return False
    return seen.finished - before.finished < samples


def _line(sample: Sample) -> str:
    said = sample.fault or sample.refusal
    rate = f"{sample.tokens} tokens in {sample.seconds:.2f} s = {sample.rate:.1f} tok/s"
    return f"{sample.label}: {said or rate}"
