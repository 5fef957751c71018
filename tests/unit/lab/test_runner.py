"""The runner of the long proofs, with a made-up proof that needs no lab."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import runner
from hostile import named_rows
from hostile_rows import ROWS


@dataclass
class Throw(runner.Run):
    """One throw of a die that may show no six."""

    value: int = 0


def prove(trial: runner.Trial[Throw]) -> None:
    """Throw so often."""

    def act(run: Throw) -> bool:
        run.value = trial.chance(run.number).randint(1, 6)
        assert run.number != trial.options.fails, "the die is lost"
        if run.value == 6:
            run.violations.append("a six")
        return run.number != trial.options.nothing

    for run in trial.remaining(Throw(number) for number in range(trial.options.throws)):
        trial.make(run, act)


PROOF = runner.Proof(
    "Throws.",
    "",
    Throw,
    prove,
    lambda trial: [runner.counts("thrown", (run.value for run in trial.runs))],
    {"throws": 4, "fails": -1, "nothing": -1},
)


def throw(*words: str) -> int:
    # With this seed: 1, 5, 1, 3.
    return PROOF.main(["--seed", "1", *words])


def record_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_same_seed_makes_the_same_runs(tmp_path: Path) -> None:
    files = [tmp_path / "first", tmp_path / "second"]
    assert [throw("--record", str(file)) for file in files] == [0, 0]
    first, second = ([line["value"] for line in record_lines(file)] for file in files)
    assert first == second == [1, 5, 1, 3]


def test_a_later_call_makes_the_missing_runs_alone(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "record"
    throw("--record", str(file), "--throws", "2")
    assert throw("--record", str(file)) == 0
    assert [line["number"] for line in record_lines(file)] == [0, 1, 2, 3]
    assert "4 runs, seed 1" in capsys.readouterr().out


def test_an_assertion_that_fails_is_a_violation_after_which_no_run_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "record"
    assert throw("--record", str(file), "--fails", "1") == 1
    assert [bool(line["violations"]) for line in record_lines(file)] == [False, True]
    assert "violations 1\n  1: AssertionError: the die is lost" in capsys.readouterr().out
    # Its line is kept: a later call makes the others and still ends with 1.
    assert throw("--record", str(file)) == 1
    assert [line["number"] for line in record_lines(file)] == [0, 1, 2, 3]


def test_what_has_nothing_to_do_is_not_kept_and_after_the_limit_no_run_begins(
    tmp_path: Path,
) -> None:
    throw("--record", str(tmp_path / "record"), "--nothing", "3")
    assert [line["number"] for line in record_lines(tmp_path / "record")] == [0, 1, 2]
    assert list(runner.Trial(None, Throw, limit=1e-9).remaining([Throw(0)])) == []


def test_a_run_that_is_made_again_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "record"
    throw("--record", str(file), "--fails", "0", "--throws", "1")
    trial = runner.Trial(None, Throw, file)
    assert list(trial.remaining([Throw(0)])) == []
    for run in trial.remaining([Throw(0)], again=True):
        trial.make(run, lambda run: True)
    assert trial.broken_rules() == []
    assert runner.Trial(None, Throw, file).broken_rules() == []


def test_an_error_on_one_host_lets_no_run_begin_on_another() -> None:
    stack: Any = SimpleNamespace(hosts=("spark1",))
    trial = runner.Trial(stack, Throw)

    def act(host: object) -> None:
        raise subprocess.CalledProcessError(1, "true")

    with pytest.raises(subprocess.CalledProcessError):
        trial.on_hosts(act)
    assert list(trial.remaining([Throw(0)])) == []


def test_the_report_of_the_longest_soak_is_still_read() -> None:
    import soaking

    (file,) = Path(soaking.__file__).parent.glob("records/soaking-*.jsonl")
    trial = runner.Trial(None, soaking.Round, file)
    assert len(trial.runs) == 2940
    assert trial.broken_rules() == []
    assert any(line.startswith("faults: ") for line in soaking.figures(trial))


def test_rows_of_hostile_accounts_are_chosen_by_names_of_their_own() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert named_rows([]) == list(ROWS)
    assert named_rows([ROWS[3].name]) == [ROWS[3]]
    with pytest.raises(SystemExit, match="no row nonsense"):
        named_rows(["nonsense"])
