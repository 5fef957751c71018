"""Takes unified memory the way the stand-in Sparks account for it."""

from __future__ import annotations

import fcntl
import uuid
from pathlib import Path
from typing import TextIO

FOLDER = Path("/run/unified-memory")
#: MemTotal of a DGX Spark in GiB (127,600,000 kB).
TOTAL_GIB = 121.7


def available_gib() -> float | None:
    """MemAvailable, or ``None`` on a machine that does not look like a Spark."""
    figures = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        figures[name] = int(rest.split()[0]) / 1024**2
    return figures["MemAvailable"] if figures["MemTotal"] > 100 else None


class Holding:
    """Memory that this process has; given back when it ends, or so much later as asked."""

    def __init__(self) -> None:
        self._file: TextIO | None = None
        if FOLDER.is_dir():
            self._file = (FOLDER / f"standin-{uuid.uuid4().hex}").open("w+")
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def resize(self, gib: float, lingers: float) -> None:
        """Have so many GiB from now on, and keep them for so many seconds after the end."""
        if self._file is None:
            return
        self._file.seek(0)
        self._file.write(f"{gib:.2f} {lingers:.1f}\n")
        self._file.truncate()
        self._file.flush()
