"""Suites about speed on an engine without time: warmed, repeated, and whether repeats agree."""

from __future__ import annotations

import pytest
from simulated_engine import MODEL, SimulatedClient, suite_result

from lockstep.bench.client import BenchUnreachable
from lockstep.bench.prompts import SHAPES
from lockstep.bench.results import SuiteResult
from lockstep.bench.ruler import ExpectedFigures, steady
from lockstep.bench.run import ENOUGH_S, FEWEST_ROUNDS, Bench

SUITES = "decode", "prefill", "concurrency"


def checks(suite: SuiteResult) -> dict[str, tuple[str, str]]:
    return {check.name: (check.verdict, check.detail) for check in suite.checks}


@pytest.mark.parametrize("name", SUITES)
def test_kernels_are_compiled_before_anything_is_measured(name: str) -> None:
    engine = SimulatedClient(1)
    [suite] = suite_result(engine, name).suites
    assert suite.verdict == "measured", suite.checks
    measured_from = engine.request_count - len(suite.samples)
    assert len(engine.compiled_requests) >= 1 and max(engine.compiled_requests) < measured_from


@pytest.mark.parametrize("name", SUITES)
def test_a_kernel_compiled_in_one_repeat_takes_the_score_away(name: str) -> None:
    sound = SimulatedClient(1)
    suite_result(sound, name)
    [suite] = suite_result(SimulatedClient(1, compiles_at=(sound.request_count - 20,)), name).suites
    assert (suite.verdict, suite.summary) == ("suspect", {})
    assert [name for name, (verdict, _) in checks(suite).items() if verdict == "suspect"] == [
        "steady"
    ]
    assert "Measure again" in checks(suite)["steady"][1]


def test_each_level_has_a_sample_of_each_round() -> None:
    for suite in suite_result(SimulatedClient(1), *SUITES).suites:
        levels = next(value for key, value in suite.summary.items() if key.startswith("by_"))
        for level in levels.values():
            spreads = [figure for figure in level.values() if isinstance(figure, dict)]
            assert len(spreads) >= 2
            assert {len(figure["samples"]) for figure in spreads} == {10}


@pytest.mark.parametrize(
    ("sequences", "notes"),
    [
        (4, ("4 of 8 streams queue: the recipe lets the engine take 4 at a time (max_num_seqs)",)),
        (64, ()),
        (None, ("how many requests the engine takes at a time is not known: of more, some queue",)),
    ],
)
def test_streams_that_must_queue_are_said_to(sequences: int | None, notes: tuple[str, ...]) -> None:
    [suite] = suite_result(SimulatedClient(1), "concurrency", sequences=sequences).suites
    assert suite.notes == notes


@pytest.mark.parametrize(("seconds", "rounds"), [(1.0, 10), (ENOUGH_S / 6.5, 7), (ENOUGH_S, 5)])
def test_rounds_end_when_they_took_long_enough(seconds: float, rounds: int) -> None:
    engine = SimulatedClient(1)
    bench = Bench(engine, ExpectedFigures(MODEL))
    round_count = 0
    for _ in bench.rounds():
        engine.pass_time(seconds)
        round_count += 1
    assert round_count == rounds >= FEWEST_ROUNDS


def test_an_engine_that_goes_away_within_a_suite_gives_no_score() -> None:
    class FailingEngine(SimulatedClient):
        def get(self, path: str, timeout_s: float = 10.0) -> str | None:
            # The test question, a warm-up of each shape, and one answer that counts.
            if self.request_count > 1 + len(SHAPES):
                raise BenchUnreachable(f"{path}: ConnectionRefusedError")
            return super().get(path, timeout_s)

    [suite] = suite_result(FailingEngine(1), "speculation").suites
    assert (suite.verdict, suite.summary) == ("suspect", {})
    message = "engine or host do not answer: /metrics: ConnectionRefusedError"
    assert checks(suite)["engine"] == ("suspect", message)


@pytest.mark.parametrize(
    ("whole", "first", "verdict"),
    [
        ([1.0, 1.4], [0.16, 0.26], "ok"),
        ([1.0, 1.6], [0.1, 0.1], "suspect"),
        ([1.0, 1.1], [0.13, 0.41], "suspect"),
        # Milliseconds more of a few.
        ([0.1, 0.18], [0.01, 0.05], "ok"),
        ([1.0], [], "ok"),
    ],
)
def test_how_far_repeats_may_be_apart(whole: list[float], first: list[float], verdict: str) -> None:
    assert steady({"8": whole}, {"8": first}).verdict == verdict
