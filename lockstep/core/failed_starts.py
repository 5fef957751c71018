"""The lines in a host's output of a switch or restart that say why a start failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# Lines of a cluster may begin with the member's name.
_FAILED, _WHY = re.compile(r".* FAILED\b"), re.compile(r"(\S+: )?  ")
#: Lines of the reason that are kept for each failed start: the last ones.
_WHY_LINES = 6


def failed_starts(lines: Sequence[str]) -> list[list[int]]:
    """Return the line indices of each failed start: its failure and the end of the reason."""
    starts: list[list[int]] = []
    is_why = False
    for at, line in enumerate(lines):
        if is_why and _WHY.match(line):
            starts[-1].append(at)
        elif is_why := bool(_FAILED.match(line)):
            starts.append([at])
    return [[first, *why[-_WHY_LINES:]] for first, *why in starts]


def telling(lines: Sequence[str], last: int) -> Iterator[str]:
    """Yield the last lines, and before them those of each failed start."""
    start_lines = {at for start in failed_starts(lines) for at in start}
    for at, line in enumerate(lines):
        if at in start_lines or at >= len(lines) - last:
            yield line
