"""Questions that expose nonsense, and the right answers to them; this module sends nothing.

Each question has one answer that every model of a Spark's size gives at temperature 0, whatever the
batch that computes it: copying and counting leave no second choice. So an answer is judged by what
is right, not by the bytes that came another time.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Opaque: only the prompt says how they go on. The reproducer of sglang#33800 has eight. Without
#: hyphens, which gpt-oss writes as another character.
IDENTIFIERS = (
    *("QX74KD93ZR2M", "B3M88TW5LN6P", "7HC4VP2EK469", "TZ91RGQ86FB3"),
    *("M4W2EX739DJ5", "2LK7N6YA4HV8", "G8P35CS9XT17", "ND5QB9762WZ4"),
)
HIGHEST = 100
STATION, HOURS = "KX4417", 6
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "read_temperature",
        "description": "Read the temperatures that a weather station measured.",
        "parameters": {
            "type": "object",
            "properties": {
                "station": {"type": "string", "description": "The station's code"},
                "hours": {"type": "integer", "description": "How many hours to look back"},
            },
            "required": ["station", "hours"],
        },
    },
}
# vLLM writes this for minus infinity, which JSON cannot (0.32).
_MINUS_INFINITY = -9999.0
# Characters between two items of a list, including the numbers of its lines.
_BETWEEN = r"[\s,;.|*•`'\"\-]*(?:\d{1,2}[.):]\s+)?[`'\"*]*"
_BETWEEN_NUMBERS = r"[\s,;.|&*_\-`]+"
# Any piece of text that is repeated twelve times in a row. For rules and blanks that is right.
_REPETITION = re.compile(r"(?P<piece>[^\s].{0,79}?)(?P=piece){11,}", re.DOTALL)
_LEAST_REPEATED = 64
_RULES = frozenset("-=_*#~.| \n\t")
_THOUGHTS = re.compile(r"^.*?</think>", re.DOTALL)


@dataclass(frozen=True)
class SenseAnswer:
    """One answer of the chat API.

    Attributes:
        text: The answer, without its thoughts.
        thoughts: Its reasoning, also if no parser took that out of the text.
        calls: Tool calls as the API gave them.
        tokens: Generated tokens, from `usage`.
        finish: The engine's finish_reason.
        leading: Text and log-probability (None if that is no number) of each token of the whole
            answer. () if the engine gives none.
    """

    text: str = ""
    thoughts: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    tokens: int | None = None
    finish: str | None = None
    leading: tuple[tuple[str, float | None], ...] = ()

    @property
    def answer_text(self) -> str:
        """The text, or the thoughts if the engine's parser took the whole text for thoughts."""
        return self.text or self.thoughts

    @property
    def thought_only(self) -> bool:
        """True if the tokens ran out before the thoughts ended."""
        return self.finish == "length" and not self.text and not self.calls


def parse_answer(raw: bytes) -> SenseAnswer:
    """Parse an answer of the chat API that is no stream; raise ValueError for anything else."""
    try:
        body = json.loads(raw)
        choice = body["choices"][0]
        message = choice["message"]
        keys = ("reasoning", "reasoning_content")
        thoughts = next((str(message[key]) for key in keys if message.get(key)), "")
        token_entries = ((choice.get("logprobs") or {}).get("content")) or []
        return answer_with_thoughts_apart(
            text=str(message.get("content") or ""),
            thoughts=thoughts,
            calls=tuple(message.get("tool_calls") or ()),
            tokens=(body.get("usage") or {}).get("completion_tokens"),
            finish=choice.get("finish_reason"),
            leading=tuple(
                (str(token_entry["token"]), token_entry.get("logprob"))
                for token_entry in token_entries
            ),
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not an answer of this API: {error!r}") from error


def answer_with_thoughts_apart(*, text: str, thoughts: str, **more: Any) -> SenseAnswer:
    """Make an answer whose thoughts may still be in its text."""
    if "<think>" in text[:16] or "</think>" in text:
        inside = _THOUGHTS.match(text)
        thoughts = thoughts or (inside.group() if inside else text)
        text = text[inside.end() :] if inside else ""
    return SenseAnswer(text.strip(), thoughts.strip(), **more)


@dataclass(frozen=True)
class SenseQuestion:
    """One question.

    Attributes:
        name: In sentences.
        prompt: The one message.
        expected_answer: The right answer, for a sentence.
        judge: Describes what came instead, in words; "" for a right answer.
        more: Further keys of the request's body.
    """

    name: str
    prompt: str
    expected_answer: str
    judge: Callable[[SenseAnswer], str]
    more: Mapping[str, Any] = field(default_factory=dict)

    def fault_of_answer(self, answer: SenseAnswer) -> str:
        """Return the fault of an answer; "" if there is none, or if it was thoughts alone."""
        if not answer.answer_text and not answer.calls:
            return f"no text, although {answer.tokens or 0} tokens were counted"
        if fault := nonfinite_probability_text(answer) or repeated_piece(answer.answer_text):
            return fault
        # The thoughts may hold the answer. If they do not, there was no answer to judge.
        return "" if answer.thought_only else self.judge(answer)

    def reason_undecided(self, answer: SenseAnswer) -> str:
        """Return the reason why an answer that is not wrong proves nothing, or ""."""
        if answer.thought_only and self.judge(answer):
            return f"all {answer.tokens} tokens were thoughts"
        return ""


def nonfinite_probability_text(answer: SenseAnswer) -> str:
    """Name the first token whose log-probability is not finite; "" if all are."""
    for number, (token, value) in enumerate(answer.leading, 1):
        if value is None or not math.isfinite(value) or value <= _MINUS_INFINITY:
            value_text = "null" if value is None else str(value)
            return f"the log-probability of token {number} ({token!r}) is {value_text}"
    return ""


def repeated_piece(text: str) -> str:
    """Name the piece of a text that is repeated over and over; "" if there is none."""
    for match in _REPETITION.finditer(text):
        piece, whole = match["piece"], match.group()
        if len(whole) >= _LEAST_REPEATED and not set(piece) <= _RULES:
            return f"{piece!r} {len(whole) // len(piece)} times in a row"
    return ""


def _judge_echo(answer: SenseAnswer) -> str:
    if re.search(_BETWEEN.join(map(re.escape, IDENTIFIERS)), answer.answer_text):
        return ""
    for number, identifier in enumerate(IDENTIFIERS, 1):
        if identifier not in answer.answer_text:
            return f"{identifier} (number {number}) is not in {_short(answer.answer_text)}"
    return f"something between them, or another order: {_short(answer.answer_text)}"


def _judge_count(answer: SenseAnswer) -> str:
    for last in range(HIGHEST, 0, -1):
        prefix_pattern = _BETWEEN_NUMBERS.join(map(str, range(1, last + 1)))
        if match := re.search(rf"(?<!\d){prefix_pattern}(?!\d)", answer.answer_text):
            then = _short(answer.answer_text[match.end() :])
            return "" if last == HIGHEST else f"1 to {last}, then {then}"
    return _short(answer.answer_text)


def _judge_call(answer: SenseAnswer) -> str:
    if not answer.calls:
        return f"no call, but text: {_short(answer.answer_text)}"
    function = answer.calls[0].get("function") or {}
    if function.get("name") != _TOOL["function"]["name"]:
        return f"a call of {function.get('name')!r}"
    try:
        arguments = json.loads(function.get("arguments") or "")
    except (TypeError, ValueError):
        return f"arguments that are no JSON: {_short(str(function.get('arguments')))}"
    # Some parsers keep a number as the text that the model wrote.
    if isinstance(arguments, dict) and (
        {**arguments, "hours": str(arguments.get("hours"))}
        == {"station": STATION, "hours": str(HOURS)}
    ):
        return ""
    return f"the arguments {_short(json.dumps(arguments))}"


def _short(text: str) -> str:
    words = " ".join(text.split())
    return repr(words if len(words) <= 80 else f"{words[:77]}...")


ECHO = SenseQuestion(
    "echo",
    "Repeat these eight identifiers exactly as they are, each on a line of its own. "
    "Write nothing else.\n\n" + "\n".join(IDENTIFIERS),
    "the eight identifiers of the prompt",
    _judge_echo,
)
COUNT = SenseQuestion(
    "count",
    f"Count from 1 to {HIGHEST} in digits, all numbers in one line with a space after each. "
    "Write every single number and leave none out. Write nothing else.",
    f"1 to {HIGHEST}",
    _judge_count,
)
TOOL = SenseQuestion(
    "tool",
    f"Read the temperatures of station {STATION} for the last {HOURS} hours with the tool. "
    "Call it now, and say nothing.",
    f"one call of read_temperature for station {STATION} and {HOURS} hours",
    _judge_call,
    {"tools": [_TOOL], "tool_choice": "auto"},
)
