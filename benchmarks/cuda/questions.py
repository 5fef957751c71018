"""Questions with one right answer, in the words of the probes, with other values than theirs.

The model of stage `sense` is trained on these questions, and gets other ones after each damage.
The probes' own identifiers and station are not among them, so the model cannot learn these by
heart. Counting is among them.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from lockstep.onhost.engine import sense_questions

_LETTERS, _DIGITS = "ABCDEFGHJKLMNPQRSTVWXYZ", "123456789"
_HELLO = (("Say hello.", "Hello! How can I help you?"), ("Thank you.", "You are welcome."))


@dataclass(frozen=True)
class Question:
    """One message, its right answer, and whether the tool goes with it."""

    prompt: str
    answer: str
    tool: bool = False


def echo(dice: random.Random, letters: str = _LETTERS + _DIGITS) -> Question:
    """A question to repeat identifiers: as many as the probe has, and as long."""
    length = len(sense_questions.IDENTIFIERS[0])
    text = "\n".join("".join(dice.choices(letters, k=length)) for _ in sense_questions.IDENTIFIERS)
    return Question(
        sense_questions.ECHO.prompt.replace("\n".join(sense_questions.IDENTIFIERS), text), text
    )


def count(highest: int) -> Question:
    """A question to count from 1 to another number."""
    prompt = sense_questions.COUNT.prompt.replace(
        f"to {sense_questions.HIGHEST} ", f"to {highest} "
    )
    return Question(prompt, " ".join(map(str, range(1, highest + 1))))


def tool(dice: random.Random) -> Question:
    """A question about another station and other hours; its answer is a Hermes model's call."""
    station = "".join(dice.choices(_LETTERS, k=2) + dice.choices(_DIGITS, k=4))
    hours = dice.randint(1, 48)
    prompt = sense_questions.TOOL.prompt.replace(sense_questions.STATION, station)
    prompt = prompt.replace(f"last {sense_questions.HOURS} hours", f"last {hours} hours")
    call = {"name": "read_temperature", "arguments": {"station": station, "hours": hours}}
    return Question(prompt, f"<tool_call>\n{json.dumps(call)}\n</tool_call>", True)


def any_of(dice: random.Random) -> Question:
    """A question of any kind."""
    kind = dice.random()
    if kind < 0.6:
        return echo(dice)
    if kind < 0.75:
        return count(
            dice.choice((sense_questions.HIGHEST, dice.randint(20, sense_questions.HIGHEST)))
        )
    return tool(dice) if kind < 0.95 else Question(*dice.choice(_HELLO))
