"""Figures of speed: warmed and repeated, compared, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Invocation
from simulated_engine import MODEL, SimulatedClient, suite_result

from lockstep.bench.client import BenchUnreachable
from lockstep.bench.compare import differences, left_out
from lockstep.bench.prompts import SHAPES
from lockstep.bench.results import Result, Subject, SuiteResult, load, save, spread
from lockstep.bench.ruler import ExpectedFigures, steady
from lockstep.bench.run import ENOUGH_S, FEWEST_ROUNDS, Bench
from lockstep.cli.main import main

# The three runs of article 004.
ARTICLE = [71.3, 65.5, 77.8]
BEFORE, AFTER = [29.1, 28.8, 29.3, 29.0], [12.5, 12.4, 12.7, 12.5]


# Two runs of one server, vLLM 0.26.0 with a model of 0.6 GB on an H200, tok/s, 2026-11-23. Its
# pace is that of a processor, and changes within a run and between two.
RESTLESS = (
    [555, 542, 547, 530, 576, 493, 585, 500, 562, 555, 559, 477, 406, 409, 416, 419, 417, 400, 413],
    [422, 422, 439, 410, 410, 439, 442, 457, 445, 415, 402, 395, 413, 415, 407, 407, 409, 402, 409],
)


def result(rates: list[float], verdict: str = "measured", lock: str = "one", **more: Any) -> Result:
    figures = {"decode_tok_s": spread(rates), **more}
    summary = {"tokens": 256, "by_shape": {"technical": figures}}
    suite = SuiteResult("decode", verdict, summary if verdict == "measured" else {})  # type: ignore[arg-type]
    subject = Subject("http://127.0.0.1:1", "m", host="spark1", lock=lock)
    return Result(subject, "2026-11-21T10:00:00Z", "2026-11-21T10:01:00Z", "0.1", (suite,))


def save_results(path: Path, results: Sequence[Result]) -> Path:
    """Save one file, or a folder of several; returns its path."""
    path.mkdir()
    for number, bench_result in enumerate(results):
        save(path / f"{number}.json", bench_result)
    return path if len(results) > 1 else path / "0.json"


def compare_runs(folder: Path, first: Sequence[Result], second: Sequence[Result]) -> Invocation:
    paths = save_results(folder / "first", first), save_results(folder / "second", second)
    return CliRunner().invoke(main, ["bench", "compare", *map(str, paths)])


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Result]]:
    """Twenty runs of one server, the same again, and of one slower by 5 %, as files keep them."""
    folder = tmp_path_factory.mktemp("runs")
    results_by_name: dict[str, list[Result]] = {}
    for offset, (name, tok_s) in enumerate((("one", 190), ("same", 190), ("slower", 190 * 0.95))):
        for run in range(20):
            noise = 0.003 + run / 20 * 0.017
            path = folder / f"{name}-{run}.json"
            save(path, suite_result(SimulatedClient(100 * offset + run, tok_s, noise), "decode"))
            results_by_name.setdefault(name, []).append(load(path))
    return results_by_name


def test_a_server_that_changes_its_pace_within_a_run_has_no_verdict() -> None:
    first, second = ([result([float(tok_s) for tok_s in run])] for run in RESTLESS)
    assert {item.verdict for item in differences(first, second)} == {"noise"}


def test_of_twenty_pairs_a_slower_server_is_always_found_and_an_equal_one_never(
    servers: dict[str, list[Result]],
) -> None:
    found_count = 0
    for first, second, slower in zip(*servers.values(), strict=True):
        verdicts = [item.verdict for item in differences([first], [second])]
        assert set(verdicts) == {"noise"}
        found_count += len(verdicts)
        verdicts = [item.verdict for item in differences([first], [slower])]
        assert "worse" in verdicts and "better" not in verdicts
    assert found_count == 20 * 4 * 3


def test_runs_of_several_streams_and_long_prompts_are_noise_to_each_other(tmp_path: Path) -> None:
    """On the H200 the second of two such runs was said to be 2.44 times as fast."""
    suites = "concurrency", "prefill"
    runs = [[suite_result(SimulatedClient(seed), *suites)] for seed in (1, 2)]
    invocation = compare_runs(tmp_path, *runs)
    assert invocation.exit_code == 0, invocation.output
    verdicts = {item.verdict for item in differences(*runs)}
    assert verdicts == {"noise"}


def test_five_runs_of_each_find_less_than_one_run_does(servers: dict[str, list[Result]]) -> None:
    sound = servers["one"][:10]
    slower = [
        suite_result(SimulatedClient(300 + run, 190 * 0.985, drift=0.002), "decode")
        for run in range(10)
    ]
    assert {item.verdict for item in differences(sound[:1], slower[:1])} == {"noise"}
    found_differences = list(differences(sound, slower))
    assert {item.verdict for item in found_differences} == {"worse", "noise"}
    assert {len(item.first["samples"]) for item in found_differences} == {10}, "one of each run"
    assert {item.verdict for item in differences(sound[:5], sound[5:])} == {"noise"}


def test_the_eagle_regression_of_the_articles_is_worse(tmp_path: Path) -> None:
    invocation = compare_runs(tmp_path, [result(BEFORE)], [result(AFTER, lock="two")])
    assert invocation.exit_code == 1
    lines = [" ".join(line.split()) for line in invocation.output.splitlines()]
    assert (lines[0], lines[2]) == ("lock: one → two", "decode")
    assert "technical decode_tok_s 29.1 ±1% 12.5 ±1% 0.43 0.42-0.44 worse" in lines


@pytest.mark.parametrize(
    ("first", "second", "critical"),
    [
        (3, 3, -1),
        (4, 4, 0),
        (5, 5, 2),
        (10, 20, 55),
    ],
)
def test_the_interval_is_that_of_published_tables(first: int, second: int, critical: int) -> None:
    """Critical values of U at 5 %, two-tailed; -1: there is none."""
    assert left_out(first, second) == critical + 1


@pytest.mark.parametrize(
    ("figure", "second", "verdict"),
    [
        ("first_token_s", [0.1, 0.11, 0.1, 0.1], "better"),
        ("first_token_s", [0.3, 0.32, 0.3, 0.3], "worse"),
        # Milliseconds more: within the noise of first tokens.
        ("first_token_s", [0.21, 0.22, 0.21, 0.21], "noise"),
        ("words", [0.1, 0.11, 0.1, 0.1], "differs"),
    ],
)
def test_which_direction_is_better(figure: str, second: list[float], verdict: str) -> None:
    runs = (
        result([190.0, 190.1, 190.2, 190.3], **{figure: spread(of_one)})
        for of_one in ([0.2, 0.21, 0.2, 0.2], second)
    )
    verdicts = {item.name: item.verdict for item in differences(*([run] for run in runs))}
    assert verdicts[f"by_shape.technical.{figure}"] == verdict


def of_length(rates: list[float], tokens: int) -> Result:
    whole = result(rates)
    suite = replace(whole.suites[0], summary={**whole.suites[0].summary, "tokens": tokens})
    return replace(whole, suites=(suite,))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (ARTICLE, result([73.0, 69.1, 70.4]), "cannot tell: 3 and 3 samples"),
        (ARTICLE, result([31.0]), "cannot tell: one sample"),
        (
            *(ARTICLE, result(ARTICLE, "suspect")),
            "no figure in common; found decode measured and decode suspect",
        ),
        (BEFORE, of_length(BEFORE, 64), "256 tokens and 64 tokens"),
    ],
)
def test_what_cannot_be_compared_is_told(
    tmp_path: Path, first: list[float], second: Result, message: str
) -> None:
    invocation = compare_runs(tmp_path, [result(first)], [second])
    output = " ".join(invocation.output.split())
    assert invocation.exit_code == 2 and message in output
    assert ("the same --tokens" in output) == ("tokens and" in message)


@pytest.mark.parametrize("text", [None, "", "[]", '{"schema": 2, "subject": {}}', '{"schema": 3}'])
def test_what_is_no_result_is_refused_with_a_sentence(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "x.json" if text is not None else tmp_path
    if text is not None:
        path.write_text(text)
    invocation = CliRunner().invoke(main, ["bench", "compare", str(path), str(path)])
    output = " ".join(invocation.output.split())
    assert invocation.exit_code == 2 and "Traceback" not in output
    assert ("x.json" if text is not None else "no result is in this folder") in output
    message = "not a result of this version; found schema 2; allowed: 3. Measure again."
    assert (message in output) == ("2" in (text or ""))


def test_another_cap_of_the_gpus_clock_is_named(tmp_path: Path) -> None:
    first, second = result(BEFORE), result(BEFORE)
    capped_result = replace(second, subject=replace(second.subject, max_clock_mhz=2100))
    assert "max_clock_mhz: None → 2100" in compare_runs(tmp_path, [first], [capped_result]).output


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
