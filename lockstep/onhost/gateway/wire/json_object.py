"""A JSON object in which single values are replaced, every other byte as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

_DECODER = json.JSONDecoder()
_BLANKS = frozenset(" \t\n\r")


class Member(NamedTuple):
    """One value of an object: where its text starts and ends, and the value."""

    start: int
    end: int
    value: Any


def members(text: str) -> dict[str, Member]:
    """The top level of an object: key → value with its place.

    Of several members of one key the last counts, as for JSON parsers. ValueError for what is no
    object; RecursionError for one that is nested too deeply.
    """
    found: dict[str, Member] = {}
    at = _blank(text, _expect(text, _blank(text, 0), "{"))
    if text[at : at + 1] == "}":
        _end(text, at + 1)
        return found
    while True:
        key, at = _DECODER.raw_decode(text, _blank(text, at))
        if not isinstance(key, str):
            raise ValueError(f"no key before {at}")
        start = _blank(text, _expect(text, _blank(text, at), ":"))
        value, end = _DECODER.raw_decode(text, start)
        found[key] = Member(start, end, value)
        at = _blank(text, end)
        if text[at : at + 1] != ",":
            break
        at += 1
    _end(text, _expect(text, at, "}"))
    return found


def replaced(text: str, found: Mapping[str, Member], new: Mapping[str, Any]) -> str:
    """The text with other values for some keys that it has, written without blanks.

    ValueError for a value that JSON has no form for.
    """
    for key in sorted(new, key=lambda key: found[key].start, reverse=True):
        start, end, _ = found[key]
        written = json.dumps(new[key], allow_nan=False, separators=(",", ":"))
        text = f"{text[:start]}{written}{text[end:]}"
    return text


def _blank(text: str, at: int) -> int:
    while text[at : at + 1] in _BLANKS:
        at += 1
    return at


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise ValueError(f"no {character} at {at}")
    return at + 1


def _end(text: str, at: int) -> None:
    if _blank(text, at) != len(text):
        raise ValueError(f"more after the object, at {at}")
