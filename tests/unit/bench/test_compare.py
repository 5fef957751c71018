"""Two results beside each other: what is more than noise, and what cannot be compared."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from click.testing import Result as Done

from lockstep.bench.results import Result, Subject, SuiteResult, save, spread
from lockstep.cli.main import main

# The three runs of article 004.
ARTICLE = [71.3, 65.5, 77.8]


def result(rates: list[float], verdict: str = "measured", lock: str = "one") -> Result:
    summary = {"decode_tok_s": spread(rates), "first_token_s": spread([0.2, 0.21, 0.2])}
    suite = SuiteResult("decode", verdict, summary if verdict == "measured" else {})  # type: ignore[arg-type]
    subject = Subject("http://127.0.0.1:1", "m", host="spark1", lock=lock)
    return Result(subject, "2026-11-21T10:00:00Z", "2026-11-21T10:01:00Z", "0.1", (suite,))


def compared(folder: Path, first: Result, second: Result) -> Done:
    paths = [folder / "first.json", folder / "second.json"]
    for path, one in zip(paths, (first, second), strict=True):
        save(path, one)
    return CliRunner().invoke(main, ["bench", "compare", *map(str, paths)])


def test_another_evening_of_the_same_engine_is_noise(tmp_path: Path) -> None:
    done = compared(tmp_path, result(ARTICLE), result([73.0, 69.1, 70.4]))
    assert done.exit_code == 0
    assert "lock" not in done.output
    row = next(line for line in done.output.splitlines() if "decode_tok_s" in line)
    assert row.split() == ["decode", "decode_tok_s", "71.5", "70.8", "0.99", "±10%", "noise"]


def test_the_eagle_regression_of_the_articles_is_worse(tmp_path: Path) -> None:
    before, after = result([29.1, 28.8, 29.3]), result([12.5, 12.4, 12.7], lock="two")
    done = compared(tmp_path, before, after)
    assert done.exit_code == 1
    assert done.output.splitlines()[0] == "lock: one → two"
    row = next(line for line in done.output.splitlines() if "decode_tok_s" in line)
    assert row.split()[4:] == ["0.43", "±2%", "worse"]


def test_a_lower_time_to_the_first_token_is_better(tmp_path: Path) -> None:
    after = result(ARTICLE)
    after.suites[0].summary["first_token_s"]["mean"] = 0.1  # type: ignore[index]
    done = compared(tmp_path, result(ARTICLE), after)
    assert done.exit_code == 0
    row = next(line for line in done.output.splitlines() if "first_token_s" in line)
    assert row.split()[-1] == "better"


def test_a_suspect_result_is_compared_with_nothing(tmp_path: Path) -> None:
    done = compared(tmp_path, result(ARTICLE), result(ARTICLE, "suspect"))
    assert done.exit_code == 2
    assert "no figure in common" in done.output
    assert "decode measured and decode suspect" in " ".join(done.output.split())
