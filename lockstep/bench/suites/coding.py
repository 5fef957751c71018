"""Suite `coding`: a dozen exercises, one attempt each at temperature 0, real tests in a sandbox.

The exercises are our own, small, each with a stub, a reference solution and real cases.
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
from lockstep.bench.sample import Ask, Sample
from lockstep.bench.suites import sandbox
from lockstep.core.errors import LockstepError
from lockstep.core.yamlfile import read_mapping
from lockstep.onhost.core import schema

# The longest reference is under 400 tokens; a model may explain itself too.
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
    """A file of the exercises is wrong."""


@dataclass(frozen=True)
class Case:
    """One call, and what it gives or raises. What it gives never enters the sandbox."""

    call: Lines
    gives: Any = None
    raises: str | None = None

    def passed(self, answer: sandbox.Answer) -> bool:
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

    def failed(self, solution: str) -> list[tuple[Case, sandbox.Answer]]:
        """Cases that a solution does not pass, with what it answered; runs it in the sandbox.

        Raises:
            SandboxError: there is none on this machine.
        """
        answers = sandbox.run(solution, [case.call for case in self.cases], self.helper)
        pairs = zip(self.cases, answers, strict=True)
        return [(case, answer) for case, answer in pairs if not case.passed(answer)]


def load_exercises() -> tuple[Exercise, ...]:
    """Every exercise, by name. ExerciseError: a file is wrong."""
    found = []
    for path in sorted(Path(__file__).with_name("exercises").glob("*.yaml")):
        data, name = read_mapping(path, ExerciseError), {"name": path.stem}
        found.append(
            schema.build(Exercise, data, where=path.name, error=ExerciseError, implied=name)
        )
    return tuple(found)


def check_exercises(exercises: Sequence[Exercise]) -> None:
    """The ruler of this suite: references pass all, stubs pass none.

    Raises:
        SandboxError: the sandbox does not run, or an exercise measures nothing here.
    """
    for exercise in exercises:
        wrong = exercise.failed(exercise.reference)
        passed = len(exercise.cases) - len(exercise.failed(exercise.stub))
        if wrong or passed:
            raise sandbox.SandboxError(
                "an exercise measures nothing on this machine",
                where=exercise.name,
                found=f"its reference fails {len(wrong)} case(s), its stub passes {passed}",
                remedy="Measure the other suites with --suite.",
            )


def coding(bench: Bench) -> Outcome:
    """Full passes and cases passed, by exercise."""
    exercises = load_exercises()
    try:
        sandbox.check()
        check_exercises(exercises)
    except sandbox.SandboxError as fault:
        return Outcome((), {}, checks=(Check("sandbox", "suspect", str(fault)),))
    samples = tuple(bench.ask(_ask(exercise)) for exercise in exercises)
    by_exercise = {
        exercise.name: graded(exercise, sample)
        for exercise, sample in zip(exercises, samples, strict=True)
    }
    cases = sum(len(exercise.cases) for exercise in exercises)
    subtests = sum(one["passed"] for one in by_exercise.values())
    summary = {
        "full_passed": sum(one["passed"] == one["cases"] for one in by_exercise.values()),
        "exercises": len(exercises),
        "subtests_passed": subtests,
        "subtests": cases,
        "by_exercise": by_exercise,
    }
    return Outcome(samples, summary, checks=(zero(subtests, cases, "cases of the exercises"),))


def zero(good: int, of: int, what: str) -> Check:
    """Nothing at all from a served model is the mark of a broken instrument (article 001)."""
    if good:
        return Check("zero", "ok", f"{good} of {of} {what}")
    return Check(
        "zero", "suspect", f"0 of {of} {what}: no model that serves scores exactly nothing"
    )


def graded(exercise: Exercise, sample: Sample) -> dict[str, Any]:
    """Cases passed, of how many, and why not all."""
    cases = len(exercise.cases)
    code = solution(sample.text)
    if code is None:
        return {"passed": 0, "cases": cases, "why": "no code block in the answer"}
    failed = exercise.failed(code)
    return {"passed": cases - len(failed), "cases": cases, "why": _why(failed, sample)}


def solution(text: str) -> str | None:
    """The longest code block of an answer; all of it where it is code without a block."""
    # A reasoning model without a parser leaves its thoughts in the text.
    text = text.rpartition("</think>")[2]
    blocks: Sequence[str] = _FENCE.findall(text)
    if blocks:
        return max(blocks, key=len)
    return text if re.match(r"\s*(?:import|from|def|class) ", text) else None


def _why(failed: Sequence[Any], sample: Sample) -> str:
    if not failed:
        return ""
    if sample.finish == "length":
        return f"the answer was not finished after {sample.tokens} tokens"
    case, answer = failed[0]
    found = answer.error if answer.error is not None else repr(answer.value)
    return f"{case.call}: {found}"[:200]


def _ask(exercise: Exercise) -> Ask:
    text = _PROMPT.format(instructions=exercise.instructions, stub=exercise.stub)
    return Ask(exercise.name, user(text), MOST_TOKENS)
