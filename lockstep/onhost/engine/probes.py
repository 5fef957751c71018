"""What a model is asked so that nonsense shows, and what a right answer is; nothing here asks.

Each question has one answer that every model of a Spark's size gives at temperature 0, whatever the
batch that it is computed in: what is copied or counted leaves no second choice. So an answer is
judged by what is right, not by the bytes that came another time.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Opaque: nothing but the prompt says how they go on. The reproducer of sglang#33800 has eight.
#: Without hyphens, which gpt-oss writes as another character.
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
#: Of an answer, in the record: enough to see another model, few enough to agree on another batch.
LEADING = 8
# vLLM writes this for minus infinity, which JSON cannot (0.32).
_MINUS_INFINITY = -9999.0
# What stands between two items of a list, numbers of its lines too.
_BETWEEN = r"[\s,;.|*•`'\"\-]*(?:\d{1,2}[.):]\s+)?[`'\"*]*"
_BETWEEN_NUMBERS = r"[\s,;.|&*_\-`]+"
# Any piece of text that comes twelve times without anything else. Rules and blanks do so rightly.
_REPEATED = re.compile(r"(?P<piece>[^\s].{0,79}?)(?P=piece){11,}", re.DOTALL)
_LEAST_REPEATED = 64
_RULES = frozenset("-=_*#~.| \n\t")
_THOUGHTS = re.compile(r"^.*?</think>", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """One answer of the chat API.

    Attributes:
        text: What it said, without its thoughts.
        thoughts: Its reasoning, also where no parser took that out of the text.
        calls: Tool calls as the API gave them.
        tokens: Generated tokens, from `usage`.
        finish: The engine's finish_reason.
        leading: Of each token its text and its log-probability, None where that is no number;
            of the whole answer. () where the engine gives none.
        others: Of each of these tokens the log-probabilities of the likeliest ones, by their text.
    """

    text: str = ""
    thoughts: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    tokens: int | None = None
    finish: str | None = None
    leading: tuple[tuple[str, float | None], ...] = ()
    others: tuple[Mapping[str, float], ...] = ()

    @property
    def said(self) -> str:
        """The text, or the thoughts of an engine whose parser took all of the text for these."""
        return self.text or self.thoughts

    @property
    def thought_only(self) -> bool:
        """Whether its tokens ended before its thoughts did."""
        return self.finish == "length" and not self.text and not self.calls

    @property
    def sha256(self) -> str:
        """Of what it answered."""
        calls = [call.get("function") for call in self.calls]
        return hashlib.sha256(json.dumps([self.said, calls]).encode()).hexdigest()


def parsed(raw: bytes) -> Answer:
    """An answer of the chat API that did not come as a stream; ValueError for what is none."""
    try:
        body = json.loads(raw)
        choice = body["choices"][0]
        message = choice["message"]
        keys = ("reasoning", "reasoning_content")
        thoughts = next((str(message[key]) for key in keys if message.get(key)), "")
        each = ((choice.get("logprobs") or {}).get("content")) or []
        return answer(
            text=str(message.get("content") or ""),
            thoughts=thoughts,
            calls=tuple(message.get("tool_calls") or ()),
            tokens=(body.get("usage") or {}).get("completion_tokens"),
            finish=choice.get("finish_reason"),
            leading=tuple((str(one["token"]), one.get("logprob")) for one in each),
            others=tuple(
                {str(other["token"]): other["logprob"] for other in one.get("top_logprobs") or ()}
                for one in each
            ),
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not an answer of this API: {error!r}") from error


def answer(*, text: str, thoughts: str, **more: Any) -> Answer:
    """An answer whose thoughts may still be in its text."""
    if "<think>" in text[:16] or "</think>" in text:
        inside = _THOUGHTS.match(text)
        thoughts = thoughts or (inside.group() if inside else text)
        text = text[inside.end() :] if inside else ""
    return Answer(text.strip(), thoughts.strip(), **more)


@dataclass(frozen=True)
class Probe:
    """One question.

    Attributes:
        name: In sentences and in the record.
        prompt: The one message.
        expected: The right answer, for a sentence.
        judge: What came instead, in words; "" for a right answer.
        more: Further keys of the request's body.
    """

    name: str
    prompt: str
    expected: str
    judge: Callable[[Answer], str]
    more: Mapping[str, Any] = field(default_factory=dict)

    def wrong(self, answer: Answer) -> str:
        """What is wrong with an answer; "" when nothing is, or when it was thoughts alone."""
        if not answer.said and not answer.calls:
            return f"no text, although {answer.tokens or 0} tokens were counted"
        if found := not_finite(answer) or repeated(answer.said):
            return found
        # The thoughts may hold the answer; where they do not, there was none to judge.
        return "" if answer.thought_only else self.judge(answer)

    def untold(self, answer: Answer) -> str:
        """Why an answer that is not wrong says nothing, or ""."""
        if answer.thought_only and self.judge(answer):
            return f"all {answer.tokens} tokens were thoughts"
        return ""


def not_finite(answer: Answer) -> str:
    """Which of its tokens has a log-probability that is none; "" where all are finite."""
    for number, (token, value) in enumerate(answer.leading, 1):
        if value is None or not math.isfinite(value) or value <= _MINUS_INFINITY:
            shown = "null" if value is None else str(value)
            return f"the log-probability of token {number} ({token!r}) is {shown}"
    return ""


def repeated(text: str) -> str:
    """Which piece of a text comes over and over; "" where none does."""
    for match in _REPEATED.finditer(text):
        piece, whole = match["piece"], match.group()
        if len(whole) >= _LEAST_REPEATED and not set(piece) <= _RULES:
            return f"{piece!r} {len(whole) // len(piece)} times in a row"
    return ""


def _echoed(answer: Answer) -> str:
    if re.search(_BETWEEN.join(map(re.escape, IDENTIFIERS)), answer.said):
        return ""
    for number, identifier in enumerate(IDENTIFIERS, 1):
        if identifier not in answer.said:
            return f"{identifier} (number {number}) is not in {_short(answer.said)}"
    return f"something between them, or another order: {_short(answer.said)}"


def _counted(answer: Answer) -> str:
    for last in range(HIGHEST, 0, -1):
        begun = _BETWEEN_NUMBERS.join(map(str, range(1, last + 1)))
        if match := re.search(rf"(?<!\d){begun}(?!\d)", answer.said):
            then = _short(answer.said[match.end() :])
            return "" if last == HIGHEST else f"1 to {last}, then {then}"
    return _short(answer.said)


def _called(answer: Answer) -> str:
    if not answer.calls:
        return f"no call, but text: {_short(answer.said)}"
    function = answer.calls[0].get("function") or {}
    if function.get("name") != _TOOL["function"]["name"]:
        return f"a call of {function.get('name')!r}"
    try:
        given = json.loads(function.get("arguments") or "")
    except (TypeError, ValueError):
        return f"arguments that are no JSON: {_short(str(function.get('arguments')))}"
    # Some parsers keep a number as the text that the model wrote.
    if isinstance(given, dict) and (
        {**given, "hours": str(given.get("hours"))} == {"station": STATION, "hours": str(HOURS)}
    ):
        return ""
    return f"the arguments {_short(json.dumps(given))}"


def _short(text: str) -> str:
    words = " ".join(text.split())
    return repr(words if len(words) <= 80 else f"{words[:77]}...")


ECHO = Probe(
    "echo",
    "Repeat these eight identifiers exactly as they are, each on a line of its own. "
    "Write nothing else.\n\n" + "\n".join(IDENTIFIERS),
    "the eight identifiers of the prompt",
    _echoed,
)
COUNT = Probe(
    "count",
    f"Count from 1 to {HIGHEST} in digits, all numbers in one line with a space after each. "
    "Write every single number and leave none out. Write nothing else.",
    f"1 to {HIGHEST}",
    _counted,
)
TOOL = Probe(
    "tool",
    f"Read the temperatures of station {STATION} for the last {HOURS} hours with the tool. "
    "Call it now, and say nothing.",
    f"one call of read_temperature for station {STATION} and {HOURS} hours",
    _called,
    {"tools": [_TOOL], "tool_choice": "auto"},
)


def differs(record: Mapping[str, Any], answer: Answer, tolerance: float) -> str:
    """How an answer differs from the one on record, by its leading log-probabilities; "" if not.

    Compared are the tokens up to the first other one: from there on two answers are two texts. That
    token itself is compared too, by what both gave for either. Two that are as likely as each other
    may come in another order, which the tolerance covers: the largest difference of a
    log-probability that counts as none. `record` holds what `leading` made.
    """
    pairs = zip(record["leading"], leading(answer), strict=False)
    for number, ((token, was), (now_token, now)) in enumerate(pairs, 1):
        if token not in now or now_token not in was:
            return f"token {number} is {now_token!r}, and on record {token!r}"
        for each in (one for one in was if one in now):
            if abs(was[each] - now[each]) > tolerance:
                return (
                    f"the log-probability of token {number} ({each!r}) is {now[each]:.3f}, and on "
                    f"record {was[each]:.3f}"
                )
        if token != now_token:
            return ""
    return ""


def leading(answer: Answer) -> list[tuple[str, dict[str, float]]]:
    """Its first tokens, each with its text and the log-probabilities of the likeliest there."""
    pairs = zip(answer.leading, answer.others, strict=False)
    return [
        (token, {**others, **({} if value is None else {token: value})})
        for (token, value), others in list(pairs)[:LEADING]
    ]
