"""Suite `coding`: a dozen exercises, one attempt each at temperature 0, real tests in a sandbox.

The exercises are our own. Each is small and has a stub, a reference solution and real cases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from lockstep.bench.prompts import user
from lockstep.bench.ruler import Check
from lockstep.bench.run import Bench, Outcome
from lockstep.bench.sample import Ask, BenchSample
from lockstep.bench.suites import sandbox
from lockstep.core.errors import LockstepError
from lockstep.core.yamlfile import read_mapping
from lockstep.onhost.core import schema

# The longest reference is under 400 tokens. A model may add an explanation.
MOST_TOKENS = 2048
_FENCE = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\r?\n(.*?)```", re.DOTALL | re.IGNORECASE)
_PROMPT = """\
{instructions}
Complete this Python file. Answer with the whole file in one code block and nothing else.

```python
{stub}```
"""
Lines = Annotated[str, schema.LINES]


class ExerciseError(LockstepError):
    """A fault in a file of the exercises."""


@dataclass(frozen=True)
class CodingTask:
    """One call and its expected value or error. The expected value never enters the sandbox."""

    call: Lines
    gives: Any = None
    raises: str | None = None

    def is_passed(self, answer: sandbox.CaseAnswer) -> bool:
        """Tell whether the answer is right."""
        return answer.raises(self.raises) if self.raises else answer.gives(self.gives)


@dataclass(frozen=True)
class Exercise:
    """One exercise: the instructions, the stub that the model completes, and the test.

    Attributes:
        reference: A solution that passes all cases.
        helper: Definitions for the cases, after the solution.
    """

    name: str
    instructions: Lines
    stub: Lines
    reference: Lines
    cases: tuple[CodingTask, ...]
    helper: Lines = ""

    def failed_cases(self, solution: str) -> list[tuple[CodingTask, sandbox.CaseAnswer]]:
        """Run a solution in the sandbox; return the cases that it fails, with its answers.

        Raises:
            SandboxError: this machine has no sandbox.
        """
        answers = sandbox.run(solution, [case.call for case in self.cases], self.helper)
        pairs = zip(self.cases, answers, strict=True)
        return [(case, answer) for case, answer in pairs if not case.is_passed(answer)]


def load_exercises() -> tuple[Exercise, ...]:
    """Load every exercise, by name.

    Raises:
        ExerciseError: a file is wrong.
    """
    exercises = []
    for path in sorted(Path(__file__).with_name("exercises").glob("*.yaml")):
        data, name = read_mapping(path, ExerciseError), {"name": path.stem}
        exercises.append(
            schema.build(Exercise, data, where=path.name, error=ExerciseError, implied_fields=name)
        )
    return tuple(exercises)


def check_exercises(exercises: Sequence[Exercise]) -> None:
    """Check the ruler of this suite: references pass all cases, stubs pass none.

    Raises:
        SandboxError: the sandbox does not run, or an exercise measures nothing here.
    """
    for exercise in exercises:
        wrong = exercise.failed_cases(exercise.reference)
        passed_count = len(exercise.cases) - len(exercise.failed_cases(exercise.stub))
        if wrong or passed_count:
            raise sandbox.SandboxError(
                "an exercise measures nothing on this machine",
                where=exercise.name,
                found=f"its reference fails {len(wrong)} case(s), its stub passes {passed_count}",
                remedy="Measure the other suites with --suite.",
            )


def coding(bench: Bench) -> Outcome:
    """Count full passes and passed cases, by exercise."""
    exercises = load_exercises()
    try:
        sandbox.check()
        check_exercises(exercises)
    except sandbox.SandboxError as fault:
        return Outcome((), {}, checks=(Check("sandbox", "suspect", str(fault)),))
    samples = tuple(bench.ask(_ask(exercise)) for exercise in exercises)
    by_exercise = {
        exercise.name: grade(exercise, sample)
        for exercise, sample in zip(exercises, samples, strict=True)
    }
    cases = sum(len(exercise.cases) for exercise in exercises)
    subtests = sum(value["passed"] for value in by_exercise.values())
    summary = {
        "full_passed": sum(value["passed"] == value["cases"] for value in by_exercise.values()),
        "exercises": len(exercises),
        "subtests_passed": subtests,
        "subtests": cases,
        "by_exercise": by_exercise,
    }
    return Outcome(samples, summary, checks=(zero(subtests, cases, "cases of the exercises"),))


def zero(good: int, of: int, description: str) -> Check:
    """Check that something passed; zero marks a broken instrument, not a model (article 001)."""
    if good:
        return Check("zero", "ok", f"{good} of {of} {description}")
    return Check(
        "zero", "suspect", f"0 of {of} {description}: no model that serves scores exactly nothing"
    )


def grade(exercise: Exercise, sample: BenchSample) -> dict[str, Any]:
    """Return the number of passed cases, the number of cases, and the reason for failures."""
    cases = len(exercise.cases)
    code = solution(sample.text)
    if code is None:
        return {"passed": 0, "cases": cases, "why": "no code block in the answer"}
    failed_cases = exercise.failed_cases(code)
    return {"passed": cases - len(failed_cases), "cases": cases, "why": _why(failed_cases, sample)}


def solution(text: str) -> str | None:
    """Return the longest code block of an answer, or all of it if it is bare code."""
    # A reasoning model without a parser leaves its thoughts in the text.
    text = text.rpartition("</think>")[2]
    blocks: Sequence[str] = _FENCE.findall(text)
    if blocks:
        return max(blocks, key=len)
    return text if re.match(r"\s*(?:import|from|def|class) ", text) else None


def _why(failed_cases: Sequence[Any], sample: BenchSample) -> str:
    if not failed_cases:
        return ""
    if sample.finish == "length":
        return f"the answer was not finished after {sample.tokens} tokens"
    case, answer = failed_cases[0]
    value_text = answer.error if answer.error is not None else repr(answer.value)
    return f"{case.call}: {value_text}"[:200]


def _ask(exercise: Exercise) -> Ask:
    text = _PROMPT.format(instructions=exercise.instructions, stub=exercise.stub)
    return Ask(exercise.name, user(text), MOST_TOKENS)
