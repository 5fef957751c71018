"""The runner of the long proofs, with a made-up proof that needs no lab."""

import json
from dataclasses import dataclass

import runner


@dataclass
class Throw(runner.Run):
    """One throw of a die."""

    value: int = 0


def prove(trial: runner.Trial[Throw]) -> None:
    """Throw four times; one throw may fail."""

    def act(run: Throw) -> bool:
        run.value = trial.chance(run.number).randint(1, 6)
        assert run.number != trial.options.fails, "the die is lost"
        return True

    for run in trial.remaining(Throw(number) for number in range(4)):
        trial.make(run, act)


def test_an_assertion_that_fails_is_a_violation_after_which_no_run_begins(tmp_path, capsys) -> None:
    proof = runner.Proof("Throws.", "", Throw, prove, lambda trial: [], {"fails": -1})
    file = tmp_path / "record"
    words = ["--seed", "1", "--record", str(file)]
    assert proof.main([*words, "--fails", "1"]) == 1
    assert "violations 1\n  1: AssertionError: the die is lost" in capsys.readouterr().out
    # Its line is kept: a later call makes the others and still ends with 1.
    assert proof.main(words) == 1
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2, 3]
    assert [bool(line["violations"]) for line in lines] == [False, True, False, False]
