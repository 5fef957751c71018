"""Bytes that come free when folders are removed: a file that another folder shares frees none."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_BLOCK = 512  # the unit of st_blocks, whatever the file system's own block is


def _files(place: Path) -> Iterator[os.stat_result]:
    """Yield every regular file at or below a place; skip files that vanish meanwhile."""
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                entry = (Path(folder) / name).lstat()
            except OSError:
                continue
            if stat.S_ISREG(entry.st_mode):
                yield entry


def freed_bytes(places: Iterable[Path], besides: Iterable[Path] = ()) -> int:
    """Return the bytes that come free if `places` go after `besides` are gone.

    A file counts if all its names go.
    """
    names: Counter[tuple[int, int]] = Counter()
    sizes: dict[tuple[int, int], tuple[int, int]] = {}
    for place in places:
        for entry in _files(place):
            key = (entry.st_dev, entry.st_ino)
            names[key] += 1
            sizes[key] = (entry.st_nlink, entry.st_blocks * _BLOCK)
    gone_names = _link_counts(besides)
    return sum(
        size for key, (links, size) in sizes.items() if names[key] + gone_names[key] >= links
    )


def unshared_places(places: Sequence[Path], besides: Iterable[Path]) -> list[Path]:
    """Return the places none of whose files has a name elsewhere, once `besides` are gone."""
    gone_names = _link_counts(besides)
    return [
        place
        for place in places
        if all(
            entry.st_nlink - gone_names[(entry.st_dev, entry.st_ino)] <= 1
            for entry in _files(place)
        )
    ]


def _link_counts(places: Iterable[Path]) -> Counter[tuple[int, int]]:
    return Counter((entry.st_dev, entry.st_ino) for place in places for entry in _files(place))
