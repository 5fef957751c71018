"""The rate at which the disk of a model's weights gives them, read around the page cache.

The start gate measures it once per disk and boot, because nothing reads the disk at that moment. A
rate that is seen while an engine loads would be the engine's own, however slowly it asks.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lockstep.onhost.core import atomic_files, clock, layout

_BLOCK = 16 * 2**20
# Two seconds tell NVMe from USB, and nobody notices them in a start of minutes.
_MOST = 2 * 2**30
_MOST_S = 2.0
#: Bytes. A smaller file ends before its disk has reached its rate.
LEAST = 256 * 2**20


def rate_of(paths: layout.Paths, device: str) -> float | None:
    """Return the MB/s (10^6 bytes) that a device (`MAJOR:MINOR`) gave in this boot, if measured."""
    rate = _load(paths).get(device)
    return rate if isinstance(rate, float) else None


def rate_of_files(paths: layout.Paths, files: Iterable[Path]) -> float | None:
    """Return the MB/s of the disk of the largest file; None if it is unknown."""
    _, status = _largest(files)
    return rate_of(paths, _device(status)) if status else None


def measure_once(paths: layout.Paths, files: Iterable[Path]) -> float | None:
    """Measure the disk of the largest file and record it, unless that was done since boot.

    Returns:
        The new MB/s; None if the rate is known already, or no file is large enough to tell.

    Raises:
        OSError: The file cannot be read, or its file system reads only through the page cache.
    """
    path, status = _largest(files)
    if status is None or status.st_size < LEAST:
        return None
    device, rates = _device(status), _load(paths)
    if device in rates:
        return None
    rate = round(_measure_bytes_per_second(path) / 1e6, 1)
    atomic_files.write_json(paths.disk_rates, {**rates, device: rate})
    return rate


def _largest(files: Iterable[Path]) -> tuple[Path, os.stat_result | None]:
    found = []
    for path in files:
        with suppress(OSError):
            found.append((path, path.stat()))
    return max(found, key=lambda item: item[1].st_size, default=(Path(), None))


def _device(status: os.stat_result) -> str:
    return f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"


def _load(paths: layout.Paths) -> dict[str, object]:
    rates = atomic_files.read_json(paths.disk_rates)
    return rates if isinstance(rates, dict) else {}


def _measure_bytes_per_second(path: Path) -> float:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        # A compressed file is read through the cache in spite of O_DIRECT, which must not give it.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        # Anonymous memory, because O_DIRECT wants its address at a page.
        with mmap.mmap(-1, _BLOCK) as buffer:
            # The first block wakes the disk.
            start = end = os.preadv(descriptor, [buffer], 0)
            began = clock.now()
            while end - start < _MOST and clock.now() - began < _MOST_S:
                count = os.preadv(descriptor, [buffer], end)
                end += count
                if count < _BLOCK:
                    break
            return (end - start) / max(clock.now() - began, 1e-6)
    finally:
        os.close(descriptor)
