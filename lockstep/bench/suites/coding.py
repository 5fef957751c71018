"""Suite `coding`: a dozen exercises, one attempt each at temperature 0, real tests in a sandbox."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lockstep.bench.prompts import user
from lockstep.bench.ruler import Check
from lockstep.bench.run import Bench, Outcome
from lockstep.bench.sample import Ask, Sample
from lockstep.bench.suites import exercises as shelf
from lockstep.bench.suites import sandbox
from lockstep.bench.suites.exercises import Exercise

# The longest reference is under 400 tokens; a model may explain itself too.
MOST_TOKENS = 2048
_FENCE = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\r?\n(.*?)```", re.DOTALL | re.IGNORECASE)
_PROMPT = """\
{instructions}
Complete this Python file. Answer with the whole file in one code block and nothing else.

```python
{stub}```
"""


def coding(bench: Bench) -> Outcome:
    """Full passes and cases passed, by exercise."""
    exercises = shelf.load()
    try:
        sandbox.check()
        shelf.check(exercises)
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
