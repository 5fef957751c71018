"""One run: suites one after another, each between two readings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import sleep
from typing import Any

from lockstep.bench.client import BenchUnreachable, Client
from lockstep.bench.look import AskHost, look
from lockstep.bench.prompts import user
from lockstep.bench.results import ResultError, SuiteResult, Verdict
from lockstep.bench.ruler import Check, ExpectedFigures, judge, waive
from lockstep.bench.sample import Ask, BenchSample
from lockstep.onhost import engines
from lockstep.onhost.rollout.speed_prompt import TOKENS

# An engine publishes its counts within a step or two. This limit only bounds the wait.
SETTLE_S = 2.0
# A loaded engine without other requests answers in seconds.
TEST_QUESTION_S = 60.0
# Rounds repeat until this time has passed. Fewer rounds run only if these already took longer.
ENOUGH_S, FEWEST_ROUNDS = 180.0, 5


@dataclass(frozen=True)
class Outcome:
    """The outcome of a suite, in the terms of `SuiteResult`; `checks` are the suite's own."""

    samples: tuple[BenchSample, ...]
    summary: dict[str, Any]
    refusal: str = ""
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class Bench:
    """The means with which every suite works.

    Attributes:
        client: Client of the engine itself.
        waived_checks: Names of checks that do not take a score away.
        api: Client of the API's port, if the gateway stands before the engine.
        vision_tensors: Number of vision tensors in the weight map, or None if unknown.
        quick: Fewer prompts: for a gate, and for tests.
        repeats: Rounds of a suite about speed, unless they take longer than `ENOUGH_S`.
        tokens: Length of an answer whose speed is measured.
        tell: Receives a line as each request ends.
    """

    client: Client
    expectation: ExpectedFigures
    ask_host: AskHost | None = None
    waived_checks: tuple[str, ...] = ()
    api: Client | None = None
    vision_tensors: int | None = None
    context: int | None = None
    quick: bool = False
    repeats: int = 10
    tokens: int = TOKENS
    tell: Callable[[str], None] = field(default=lambda line: None)

    def ask(self, ask: Ask) -> BenchSample:
        """Send one request to the engine."""
        return self.together([ask])[0][0]

    def together(self, asks: Sequence[Ask]) -> tuple[list[BenchSample], float]:
        """Send requests at the same moment; return samples and the seconds until all ended."""
        samples, seconds = self.client.together(asks)
        for sample in samples:
            self.tell(_line(sample))
        return samples, seconds

    def rounds(self) -> Iterator[int]:
        """Yield the rounds of a suite about speed: `repeats`, or as many as `ENOUGH_S` holds."""
        began = self.client.clock.now()
        for number in range(self.repeats):
            if number >= FEWEST_ROUNDS and self.client.clock.now() - began > ENOUGH_S:
                return
            yield number

    def settled_counters(
        self, earlier_counters: engines.Counters | None, samples: int
    ) -> engines.Counters | None:
        """Return the counters once they contain all answers, or after `SETTLE_S` in any case.

        Raises:
            BenchUnreachable: the engine does not answer.
        """
        for _ in range(20):
            counters_now = engines.counters(self.client.get("/metrics") or "")
            if not _behind(earlier_counters, counters_now, samples):
                break
            sleep(SETTLE_S / 20)
        return counters_now


@dataclass(frozen=True)
class Suite:
    """A measurement between two looks.

    Attributes:
        warm: True if a round that does not count comes first, because an engine compiles kernels
            at the first request of a shape.
    """

    name: str
    run: Callable[[Bench], Outcome]
    warm: bool = False


def measure(bench: Bench, suite: Suite) -> SuiteResult:
    """Run one suite between two looks. Never raises for a fault of the engine."""
    try:
        sung = _sings(bench)
        if suite.warm:
            suite.run(replace(bench, repeats=1, tell=lambda line: bench.tell(f"warm-up, {line}")))
        bench.settled_counters(None, 0)
        first_look = look(bench.client, bench.ask_host)
        outcome = suite.run(bench)
        answer_count = sum(sample.status == 200 for sample in outcome.samples)
        bench.settled_counters(first_look.counters, answer_count)
        last_look = look(bench.client, bench.ask_host)
        sung += _sings(bench)
    except (BenchUnreachable, ResultError) as fault:
        check = Check("engine", "suspect", f"engine or host do not answer: {fault}")
        return SuiteResult(suite.name, "suspect", checks=(check,))
    all_checks = judge(first_look, last_look, outcome.samples, bench.expectation, sung)
    checks = waive([*all_checks, *outcome.checks], bench.waived_checks)
    verdict: Verdict = "refused" if outcome.refusal else "measured"
    if any(check.verdict == "suspect" for check in checks):
        verdict = "suspect"
    return SuiteResult(
        suite.name,
        verdict,
        # A suspect ruler gives no score, not even one with a remark.
        outcome.summary if verdict == "measured" else {},
        outcome.refusal,
        tuple(checks),
        outcome.samples,
        outcome.notes,
    )


def _sings(bench: Bench) -> int:
    limit = min(TEST_QUESTION_S, bench.client.timeout_s)
    ask = Ask("test_question", user("Say hello."), 16, stream=False, timeout_s=limit)
    return int(bench.client.complete(ask).good)


def _behind(
    earlier_counters: engines.Counters | None, counters_now: engines.Counters | None, samples: int
) -> bool:
    if counters_now is None:
        return False
    if counters_now.outstanding:
        return True
    if (
        earlier_counters is None
        or earlier_counters.finished_requests is None
        or counters_now.finished_requests is None
    ):
        return False
    return counters_now.finished_requests - earlier_counters.finished_requests < samples


def _line(sample: BenchSample) -> str:
    fault = sample.fault or sample.refusal
    rate = f"{sample.tokens} tokens in {sample.seconds:.2f} s = {sample.rate:.1f} tok/s"
    return f"{sample.label}: {fault or rate}"
