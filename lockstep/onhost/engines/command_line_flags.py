"""Flags in a command line."""

from __future__ import annotations

import re
from collections.abc import Sequence

# "-1" is a value, not a flag; "-O3" is a flag.
_SHORT_OR_LONG = re.compile(r"--[A-Za-z]|-[A-Za-z]+\d?(?:[.=]|$)")


def is_flag(word: str) -> bool:
    """Tell whether a word of a command line starts a flag."""
    return bool(_SHORT_OR_LONG.match(word))


def flag_span(argv: Sequence[str], names: Sequence[str]) -> tuple[int, int] | None:
    """Return the span [start, end) of the last occurrence of a flag with its values, or None.

    The last occurrence counts, as it does for the engines' parsers.
    """
    for index in reversed(range(len(argv))):
        word = argv[index]
        if word.startswith("-") and word.partition("=")[0] in names and is_flag(word):
            return index, _end(argv, index)
    return None


def value_of(argv: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the (first) value of a flag, "" for a flag without one, None if it is absent."""
    span = flag_span(argv, names)
    if span is None:
        return None
    head, *values = argv[span[0] : span[1]]
    if "=" in head:
        return head.split("=", 1)[1]
    return values[0] if values else ""


def _end(argv: Sequence[str], index: int) -> int:
    end = index + 1
    while "=" not in argv[index] and end < len(argv) and not is_flag(argv[end]):
        end += 1
    return end
