"""The order of Debian versions (deb-version(7)), on machines that have no dpkg."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator


def compare(one: str, other: str) -> int:
    """Below, equal to or above 0, as ``one`` is older than, equal to or newer than ``other``."""
    for mine, theirs in zip(_parts(one), _parts(other), strict=True):
        answer = _compare_part(mine, theirs)
        if answer:
            return answer
    return 0


def _parts(version: str) -> tuple[str, str, str]:
    """Epoch, upstream version and revision."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return (epoch, upstream, revision) if dash else (epoch, rest, "0")


def _compare_part(one: str, other: str) -> int:
    for mine, theirs in itertools.zip_longest(_chunks(one), _chunks(other), fillvalue=((), 0)):
        if mine != theirs:
            return -1 if _padded(mine, theirs) < _padded(theirs, mine) else 1
    return 0


def _chunks(text: str) -> Iterator[tuple[tuple[int, ...], int]]:
    """Pairs of non-digits, as their weights, and a number."""
    for letters, digits in re.findall(r"(\D*)(\d*)", text):
        if letters or digits:
            yield tuple(map(_weight, letters)), int(digits or 0)


def _weight(letter: str) -> int:
    """`~` is before the end of a part (0), letters are after it, other signs after letters."""
    if letter == "~":
        return -1
    return ord(letter) if letter.isalpha() else ord(letter) + 256


def _padded(
    mine: tuple[tuple[int, ...], int], theirs: tuple[tuple[int, ...], int]
) -> tuple[tuple[int, ...], int]:
    width = max(len(mine[0]), len(theirs[0]))
    return mine[0] + (0,) * (width - len(mine[0])), mine[1]
