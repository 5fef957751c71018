"""How flags sit in a command line."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Not "-1", which is a value; "-O3" is a flag.
_SHORT_OR_LONG = re.compile(r"--[A-Za-z]|-[A-Za-z]+\d?(?:[.=]|$)")


def is_flag(word: str) -> bool:
    """Whether a word of a command line starts a flag."""
    return bool(_SHORT_OR_LONG.match(word))


def find(argv: Sequence[str], names: Sequence[str]) -> tuple[int, int] | None:
    """The span [start, end) of the last occurrence of a flag with its values, or None.

    The last one counts, as it does for the engines' parsers.
    """
    for index in reversed(range(len(argv))):
        word = argv[index]
        if word.startswith("-") and word.partition("=")[0] in names and is_flag(word):
            return index, _end(argv, index)
    return None


def value_of(argv: Sequence[str], names: Sequence[str]) -> str | None:
    """The (first) value of a flag, "" for a flag without one, None where it is absent."""
    span = find(argv, names)
    if span is None:
        return None
    head, *rest = argv[span[0] : span[1]]
    if "=" in head:
        return head.split("=", 1)[1]
    return rest[0] if rest else ""


def _end(argv: Sequence[str], index: int) -> int:
    end = index + 1
    while "=" not in argv[index] and end < len(argv) and not is_flag(argv[end]):
        end += 1
    return end
