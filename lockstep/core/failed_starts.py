"""Of what a host says of a switch or a restart: the lines that tell why a start failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# A cluster's lines may have the member's name before them.
_FAILED, _WHY = re.compile(r".* FAILED\b"), re.compile(r"(\S+: )?  ")
#: Lines of why that are kept of each start that failed: the last ones.
_WHY_LINES = 6


def failed_starts(lines: Sequence[str]) -> list[list[int]]:
    """Of each start that failed the indices of its lines: that it failed, and the last of why."""
    found: list[list[int]] = []
    is_why = False
    for at, line in enumerate(lines):
        if is_why and _WHY.match(line):
            found[-1].append(at)
        elif is_why := bool(_FAILED.match(line)):
            found.append([at])
    return [[first, *why[-_WHY_LINES:]] for first, *why in found]


def telling(lines: Sequence[str], last: int) -> Iterator[str]:
    """The last lines, and before them those of each start that failed."""
    kept = {at for each in failed_starts(lines) for at in each}
    for at, line in enumerate(lines):
        if at in kept or at >= len(lines) - last:
            yield line
