"""Figures of speed: warmed and repeated, compared, and what cannot be compared."""

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


def compare_runs(folder: Path, first: Result, second: Result) -> Invocation:
    """Compare a file and a folder."""
    runs = folder / "second"
    runs.mkdir()
    save(folder / "first.json", first)
    save(runs / "run.json", second)
    return CliRunner().invoke(main, ["bench", "compare", f"{folder}/first.json", str(runs)])


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Twenty runs of one server, the same again, and of one slower by 5 %, as files keep them."""
    path = tmp_path_factory.mktemp("runs") / "run.json"
    results_by_name: dict[str, list[Result]] = {}
    for offset, (name, tok_s) in enumerate((("one", 190), ("same", 190), ("slower", 190 * 0.95))):
        for run in range(20):
            noise = 0.003 + run / 20 * 0.017
            save(path, suite_result(SimulatedClient(100 * offset + run, tok_s, noise), "decode"))
            results_by_name.setdefault(name, []).append(load(path))
    return results_by_name


def test_a_server_that_changes_its_pace_within_a_run_has_no_verdict() -> None:
    first, second = ([result([float(tok_s) for tok_s in run])] for run in RESTLESS)
    assert {item.verdict for item in differences(first, second)} == {"noise"}


def test_of_twenty_pairs_a_slower_server_is_always_found_and_an_equal_one_never(servers):
    for first, second, slower in zip(*servers.values(), strict=True):
        verdicts = [item.verdict for item in differences([first], [second])]
        assert set(verdicts) == {"noise"} and len(verdicts) == 4 * 3
        verdicts = [item.verdict for item in differences([first], [slower])]
        assert "worse" in verdicts and "better" not in verdicts


def test_five_runs_of_each_find_less_than_one_run_does(servers):
    sound = servers["one"][:10]
    slower_engines = [SimulatedClient(300 + run, 190 * 0.985, drift=0.002) for run in range(10)]
    slower = [suite_result(engine, "decode") for engine in slower_engines]
    assert {item.verdict for item in differences(sound[:1], slower[:1])} == {"noise"}
    found_differences = list(differences(sound, slower))
    assert {item.verdict for item in found_differences} == {"worse", "noise"}
    assert {len(item.first["samples"]) for item in found_differences} == {10}, "one of each run"
    assert {item.verdict for item in differences(sound[:5], sound[5:])} == {"noise"}


def test_the_eagle_regression_of_the_articles_is_worse(tmp_path: Path) -> None:
    invocation = compare_runs(tmp_path, result(BEFORE), result(AFTER, lock="two"))
    assert invocation.exit_code == 1
    lines = [" ".join(line.split()) for line in invocation.output.splitlines()]
    assert lines[0] == "lock: one → two"
    assert "technical decode_tok_s 29.1 ±1% 12.5 ±1% 0.43 0.42-0.44 worse" in lines


@pytest.mark.parametrize(
    ("first", "second", "critical"), [(3, 3, -1), (4, 4, 0), (5, 5, 2), (10, 20, 55)]
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


def of_length(tokens: int) -> Result:
    suite = SuiteResult("decode", "measured", {"tokens": tokens, "rate": spread(BEFORE)})
    return replace(result(BEFORE), suites=(suite,))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (result(ARTICLE), result([73.0, 69.1, 70.4]), "cannot tell: 3 and 3 samples"),
        (result(ARTICLE), result([31.0]), "cannot tell: one sample"),
        (result(ARTICLE), result(ARTICLE, "suspect"), "found decode measured and decode suspect"),
        (result(BEFORE), of_length(64), "64 tokens. Measure both with the same --tokens"),
    ],
)
def test_what_cannot_be_compared_is_told(tmp_path, first, second, message):
    invocation = compare_runs(tmp_path, first, second)
    assert invocation.exit_code == 2
    assert message in " ".join(invocation.output.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.json: not JSON"),
        ('{"schema": 2, "subject": {}}', "found schema 2; allowed: 3. Measure again."),
        ('{"schema": 3}', "not a result of `lockstep bench`"),
    ],
)
def test_what_is_no_result_is_refused_with_a_sentence(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)
    paths = [f"{tmp_path}/x.json"] * 2
    invocation = CliRunner().invoke(main, ["bench", "compare", *paths])
    assert invocation.exit_code == 2
    assert message in " ".join(invocation.output.split())


SUITES = "decode", "prefill", "concurrency"


@pytest.mark.parametrize("name", SUITES)
def test_kernels_are_compiled_before_anything_is_measured_or_there_is_no_score(name: str) -> None:
    engine = SimulatedClient(1)
    [suite] = suite_result(engine, name).suites
    assert suite.verdict == "measured", suite.checks
    measured_from = engine.request_count - len(suite.samples)
    assert len(engine.compiled_requests) >= 1 and max(engine.compiled_requests) < measured_from
    late_engine = SimulatedClient(1, compiles_at=(engine.request_count - 20,))
    [suite] = suite_result(late_engine, name).suites
    assert (suite.verdict, suite.summary) == ("suspect", {})
    assert [check.name for check in suite.checks if check.verdict == "suspect"] == ["steady"]


@pytest.mark.parametrize(("seconds", "rounds"), [(1.0, 10), (ENOUGH_S / 6.5, 7), (ENOUGH_S, 5)])
def test_rounds_end_when_they_took_long_enough(seconds: float, rounds: int) -> None:
    engine = SimulatedClient(1)
    rounds_run = [engine.pass_time(seconds) for _ in Bench(engine, ExpectedFigures(MODEL)).rounds()]
    assert len(rounds_run) == rounds >= FEWEST_ROUNDS


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
    assert [check.detail for check in suite.checks] == [message]


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
