"""Replacement of single values in a JSON object, every other byte unchanged."""

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
    """A document with so many values that parsing it would hold up everybody else."""


#: As a new value: leave the key out.
GONE = object()


class JsonMember(NamedTuple):
    """One value of an object: where its text starts and ends, and the value."""

    start: int
    end: int
    value: Any
    key: int  #: Start of its key's text.
    again: bool  #: Whether the key occurred before.


def top_level_members(text: str) -> dict[str, JsonMember]:
    """Return the top level of an object: key → value with its place.

    Of several members of one key the last counts, as in JSON parsers.

    Raises:
        TooMany: It may have more than `VALUES` values, or has more than `MEMBERS` members.
        ValueError: It is not an object.
        RecursionError: It is nested too deeply.
    """
    # Each value but the first follows one of these. Those inside texts count too, which errs on the
    # safe side and takes no parsing.
    if text.count(",") + text.count("{") + text.count("[") > VALUES:
        raise TooMany(f"the body has more than {VALUES:,} values")
    members_by_key: dict[str, JsonMember] = {}
    rounds = 0
    at = _skip_blanks(text, _expect(text, _skip_blanks(text, 0), "{"))
    if text[at : at + 1] == "}":
        _require_end_of_text(text, at + 1)
        return members_by_key
    while True:
        # Not the length of `found`, which counts members of one key once.
        rounds += 1
        if rounds > MEMBERS:
            raise TooMany(f"the body's object has more than {MEMBERS:,} members")
        begins = _skip_blanks(text, at)
        key, at = _DECODER.raw_decode(text, begins)
        if not isinstance(key, str):
            raise ValueError(f"no key before {at}")
        start = _skip_blanks(text, _expect(text, _skip_blanks(text, at), ":"))
        value, end = _DECODER.raw_decode(text, start)
        members_by_key[key] = JsonMember(start, end, value, begins, key in members_by_key)
        at = _skip_blanks(text, end)
        if text[at : at + 1] != ",":
            break
        at += 1
    _require_end_of_text(text, _expect(text, at, "}"))
    return members_by_key


def replace_members(
    text: str, members_by_key: Mapping[str, JsonMember], new: Mapping[str, Any]
) -> str:
    """Return the text with new values for some of its keys, written without blanks.

    A key whose new value is `GONE` is left out. Raise ValueError if JSON has no form for a value.
    """
    for key in sorted(new, key=lambda key: members_by_key[key].start, reverse=True):
        start, end, _, begins, again = members_by_key[key]
        if new[key] is not GONE or again:
            # If the last one were left out, an earlier one of the key would count again.
            value = None if new[key] is GONE else new[key]
            new_text = json.dumps(value, allow_nan=False, separators=(",", ":"))
            text = f"{text[:start]}{new_text}{text[end:]}"
            continue
        next_place = _skip_blanks(text, end)
        if text[next_place] == ",":
            text = text[:begins] + text[_skip_blanks(text, next_place + 1) :]
        else:
            # The last member: the comma before it goes too, if there is one.
            text = text[:begins].rstrip(_SPACES).removesuffix(",") + text[end:]
    return text


def _skip_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise ValueError(f"no {character} at {at}")
    return at + 1


def _require_end_of_text(text: str, at: int) -> None:
    if _skip_blanks(text, at) != len(text):
        raise ValueError(f"more after the object, at {at}")
