"""The coding exercises: our own, small, each with a stub, a reference solution and real cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from lockstep.bench.suites.sandbox import Answer, SandboxError, run
from lockstep.core.errors import LockstepError
from lockstep.core.yamlfile import parse_mapping
from lockstep.onhost.core import schema
from lockstep.onhost.core.schema import LINES

Lines = Annotated[str, LINES]


class ExerciseError(LockstepError):
    """A file of the exercises is wrong."""


@dataclass(frozen=True)
class Case:
    """One call, and what it gives or raises. What it gives never enters the sandbox."""

    call: Lines
    gives: Any = None
    raises: str | None = None

    def passed(self, answer: Answer) -> bool:
        """Whether that is the right answer."""
        return answer.raises(self.raises) if self.raises else answer.gives(self.gives)


@dataclass(frozen=True)
class Exercise:
    """One exercise: what the model is told, the stub that it completes, and the test.

    Attributes:
        reference: A solution that passes all cases.
        helper: Definitions for the cases, after the solution.
    """

    name: str
    instructions: Lines
    stub: Lines
    reference: Lines
    cases: tuple[Case, ...]
    helper: Lines = ""

    def failed(self, solution: str) -> list[tuple[Case, Answer]]:
        """Cases that a solution does not pass, with what it answered; runs it in the sandbox.

        Raises:
            SandboxError: there is none on this machine.
        """
        answers = run(solution, [case.call for case in self.cases], self.helper)
        pairs = zip(self.cases, answers, strict=True)
        return [(case, answer) for case, answer in pairs if not case.passed(answer)]


def load() -> tuple[Exercise, ...]:
    """Every exercise, by name. ExerciseError: a file is wrong."""
    folder = resources.files(__package__) / "exercises"
    files = sorted(item.name for item in folder.iterdir() if item.name.endswith(".yaml"))
    return tuple(_exercise(name, (folder / name).read_text(encoding="utf-8")) for name in files)


def _exercise(file: str, text: str) -> Exercise:
    data = parse_mapping(text, file, ExerciseError)
    name = {"name": Path(file).stem}
    return schema.build(Exercise, data, where=file, error=ExerciseError, implied=name)


def check(exercises: Sequence[Exercise]) -> None:
    """The ruler of this suite: references pass all, stubs pass none.

    Raises:
        SandboxError: the sandbox does not run, or an exercise measures nothing here.
    """
    for exercise in exercises:
        wrong = exercise.failed(exercise.reference)
        passed = len(exercise.cases) - len(exercise.failed(exercise.stub))
        if wrong or passed:
            raise SandboxError(
                "an exercise measures nothing on this machine",
                where=exercise.name,
                found=f"its reference fails {len(wrong)} case(s), its stub passes {passed}",
                remedy="Measure the other suites with --suite.",
            )
