"""How many bytes come free when folders are removed: a file that another one shares does not."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_BLOCK = 512  # what st_blocks counts in, whatever the file system's own block is


def _files(place: Path) -> Iterator[os.stat_result]:
    """Every regular file at or below a place; what vanishes meanwhile is passed over."""
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                found = (Path(folder) / name).lstat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield found


def freed(places: Iterable[Path], besides: Iterable[Path] = ()) -> int:
    """Bytes that come free when `places` go, `besides` being gone already.

    A file counts when all its names go.
    """
    names: Counter[tuple[int, int]] = Counter()
    sizes: dict[tuple[int, int], tuple[int, int]] = {}
    for place in places:
        for found in _files(place):
            key = (found.st_dev, found.st_ino)
            names[key] += 1
            sizes[key] = (found.st_nlink, found.st_blocks * _BLOCK)
    gone = _names(besides)
    return sum(size for key, (links, size) in sizes.items() if names[key] + gone[key] >= links)


def unshared(places: Sequence[Path], besides: Iterable[Path]) -> list[Path]:
    """Places none of whose files has a name elsewhere, once `besides` are gone."""
    gone = _names(besides)
    return [
        place
        for place in places
        if all(found.st_nlink - gone[(found.st_dev, found.st_ino)] <= 1 for found in _files(place))
    ]


def _names(places: Iterable[Path]) -> Counter[tuple[int, int]]:
    return Counter((found.st_dev, found.st_ino) for place in places for found in _files(place))
