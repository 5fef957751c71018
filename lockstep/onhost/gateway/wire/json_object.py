"""A JSON object in which single values are replaced, every other byte as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

#: Members of a request's object: the largest protocol served here, OpenAI's chat, has about 40.
MEMBERS = 1_000
#: Values of a whole body. 500,000 take at most 0.2 s of one core here (2026-11-26), in which nobody
#: else is answered; token lists of a million tokens are the only honest bodies above it.
VALUES = 500_000
_DECODER = json.JSONDecoder()
_SPACES = " \t\n\r"
_BLANKS = re.compile(f"[{_SPACES}]*")


class TooMany(ValueError):
    """A document with so many values that reading it would hold up everybody else."""


#: In the place of a new value: the key is left out.
GONE = object()


class Member(NamedTuple):
    """One value of an object: where its text starts and ends, and the value."""

    start: int
    end: int
    value: Any
    key: int  #: Where the text of its key starts.
    again: bool  #: Whether the key has stood before.


def members(text: str) -> dict[str, Member]:
    """The top level of an object: key → value with its place.

    Of several members of one key the last counts, as for JSON parsers.

    Raises:
        TooMany: it may have more than `VALUES` values, or has more than `MEMBERS` members.
        ValueError: it is no object.
        RecursionError: it is nested too deeply.
    """
    # Each value but the first follows one of these; in texts they count too, which errs on the safe
    # side and takes no parsing.
    if text.count(",") + text.count("{") + text.count("[") > VALUES:
        raise TooMany(f"the body has more than {VALUES:,} values")
    found: dict[str, Member] = {}
    rounds = 0
    at = _blank(text, _expect(text, _blank(text, 0), "{"))
    if text[at : at + 1] == "}":
        _end(text, at + 1)
        return found
    while True:
        # Not the length of `found`: members of one key are one there.
        rounds += 1
        if rounds > MEMBERS:
            raise TooMany(f"the body's object has more than {MEMBERS:,} members")
        begins = _blank(text, at)
        key, at = _DECODER.raw_decode(text, begins)
        if not isinstance(key, str):
            raise ValueError(f"no key before {at}")
        start = _blank(text, _expect(text, _blank(text, at), ":"))
        value, end = _DECODER.raw_decode(text, start)
        found[key] = Member(start, end, value, begins, key in found)
        at = _blank(text, end)
        if text[at : at + 1] != ",":
            break
        at += 1
    _end(text, _expect(text, at, "}"))
    return found


def replaced(text: str, found: Mapping[str, Member], new: Mapping[str, Any]) -> str:
    """The text with other values for some keys that it has, written without blanks.

    A key whose new value is `GONE` is left out. ValueError for a value that JSON has no form for.
    """
    for key in sorted(new, key=lambda key: found[key].start, reverse=True):
        start, end, _, begins, again = found[key]
        if new[key] is not GONE or again:
            # Left out, one that has stood before would be what it was then.
            value = None if new[key] is GONE else new[key]
            written = json.dumps(value, allow_nan=False, separators=(",", ":"))
            text = f"{text[:start]}{written}{text[end:]}"
            continue
        after = _blank(text, end)
        if text[after] == ",":
            text = text[:begins] + text[_blank(text, after + 1) :]
        else:
            # The last one: the comma before it goes too, where there is one.
            text = text[:begins].rstrip(_SPACES).removesuffix(",") + text[end:]
    return text


def _blank(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise ValueError(f"no {character} at {at}")
    return at + 1


def _end(text: str, at: int) -> None:
    if _blank(text, at) != len(text):
        raise ValueError(f"more after the object, at {at}")
