"""A Spark's unified memory, as a stand-in host shows it in /proc/meminfo.

An engine in the lab holds a few hundred megabytes; the model it stands for would hold a
hundred gigabytes. So the figure is kept by the supervisor in a file that each host sees as its
/proc/meminfo, and whoever plays a memory holder says so in ``/run/unified-memory`` (in the host
and in each of its containers): a file of any name whose first word is the number of GiB, and
whose second, if any, the seconds for which they stay taken after the holder died. The holder
keeps a flock on its file while it lives; a file that nobody locks is removed, like the memory
of a process that ended. A power cut empties the folder.

A third word is the GiB that the holder has read from the disk so far. They fill the page cache,
which stays when the holder ends and goes when the guest writes ``drop_caches``.

A file ``host-frozen`` costs the host its power.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from lockstep.onhost.core import atomic_files

#: MemTotal of a DGX Spark in kB: 121.7 GiB of its 128 GB.
TOTAL = 127_600_000
#: Available memory of an idle Spark, in GiB.
IDLE = 118.0
#: Page cache of an idle Spark, and the part that the kernel keeps when it drops it, in GiB.
CACHED, CACHE_KEPT = 3.0, 0.5
#: The swap file of DGX OS, in kB.
SWAP = 16_777_212
_GIB = 1024 * 1024


def meminfo(available: float, cache: float = CACHED) -> str:
    """The text of /proc/meminfo with ``available`` GiB of MemAvailable; its length never changes.

    At most ``cache`` GiB of them are page cache, the rest is MemFree.
    """
    free = max(0, min(TOTAL, round(available * _GIB)))
    cached_kib = min(round(cache * _GIB), free)
    used_kib = TOTAL - free
    fields = {
        "MemTotal": TOTAL,
        "MemFree": free - cached_kib,
        "MemAvailable": free,
        "Buffers": 180_000,
        "Cached": cached_kib,
        "SwapCached": 0,
        "Active": used_kib // 2,
        "Inactive": used_kib // 4,
        "Unevictable": 28_000,
        "Mlocked": 28_000,
        "SwapTotal": SWAP,
        "SwapFree": SWAP,
        "Dirty": 220,
        "Writeback": 0,
        "AnonPages": used_kib // 2,
        "Mapped": 420_000,
        "Shmem": 24_000,
        "KReclaimable": 310_000,
        "Slab": 620_000,
        "SReclaimable": 310_000,
        "SUnreclaim": 310_000,
        "KernelStack": 11_000,
        "PageTables": 21_000,
        "CommitLimit": SWAP + TOTAL // 2,
        "Committed_AS": used_kib,
        "VmallocTotal": 133_143_592_960,
        "VmallocUsed": 90_000,
        "HugePages_Total": 0,
        "HugePages_Free": 0,
        "Hugepagesize": 2_048,
    }
    lines = []
    for name, value in fields.items():
        unit = "" if name.startswith("HugePages_") else " kB"
        lines.append(f"{name + ':':<16}{value:>12}{unit}\n")
    return "".join(lines)


class Ledger:
    """A host's account of unified memory; keeps its meminfo file in step with what is held."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "meminfo"
        self._holding_folder = folder / "held"
        self._drop_hot_models = folder / "sys/vm/drop_caches"
        self._release_times: dict[str, float] = {}
        self._read: dict[str, float] = {}
        self._cache = CACHED
        self._shown_memory: tuple[float, float] | None = None
        self._goal: tuple[float, float] | None = None
        self._update_time = time.monotonic()
        self.idle = IDLE

    def reset(self) -> None:
        """Start as after power-up: nothing is held."""
        self._holding_folder.mkdir(parents=True, exist_ok=True)
        self._holding_folder.chmod(0o1777)
        for entry in self._holding_folder.iterdir():
            entry.unlink()
        self._release_times.clear()
        self._read.clear()
        self._cache = CACHED
        self._shown_memory = None
        self.update()

    def move(self, idle: float, rate: float | None = None) -> None:
        """Change the available memory without a holder: at once, or by `rate` GiB in a second."""
        self._goal = (idle, float("inf") if rate is None else rate)
        self._update_time = time.monotonic()
        self.update()

    @property
    def moving(self) -> bool:
        """Tell whether the available memory is on its way to another value."""
        return self._goal is not None

    def _advance_idle(self) -> None:
        now, previous = time.monotonic(), self._update_time
        self._update_time = now
        if self._goal is None:
            return
        goal, rate = self._goal
        if rate == float("inf") or abs(goal - self.idle) <= rate * (now - previous):
            self.idle, self._goal = goal, None
        elif goal < self.idle:
            self.idle -= rate * (now - previous)
        else:
            self.idle += rate * (now - previous)

    @property
    def available(self) -> float:
        """GiB that the host shows as MemAvailable."""
        return self._shown_memory[0] if self._shown_memory is not None else self.idle

    @property
    def is_frozen(self) -> bool:
        """Tell whether an engine has frozen the host."""
        return (self._holding_folder / "host-frozen").exists()

    def update(self) -> None:
        """Write the file anew if the memory held has changed."""
        self._advance_idle()
        with os.scandir(self._holding_folder) as entries:
            held_gib = sum(self._held_gib(Path(entry.path)) for entry in entries)
        available = max(0.0, self.idle - held_gib)
        if self._has_dropped_cache():
            self._cache = CACHE_KEPT
        self._cache = min(self._cache, available)
        if (available, self._cache) == self._shown_memory:
            return
        text = meminfo(available, self._cache).encode()
        # The guest has this very inode mounted: it is overwritten in place, never replaced.
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(handle, text, 0)
        finally:
            os.close(handle)
        self._shown_memory = available, self._cache

    def _has_dropped_cache(self) -> bool:
        """Tell whether the guest has asked to drop the page cache since the last call."""
        if not self._drop_hot_models.exists() or not self._drop_hot_models.stat().st_size:
            return False
        os.truncate(self._drop_hot_models, 0)
        return True

    def share(self, name: str, content: object) -> None:
        """Write a JSON file in the holders' folder, for the stand-ins; without content, remove it.

        A power cut removes the file too.
        """
        path = self._holding_folder / name
        if content:
            atomic_files.write_json(path, content)
        else:
            path.unlink(missing_ok=True)

    def _held_gib(self, path: Path) -> float:
        """GiB that the holder behind ``path`` has; removes the file of a holder that has ended."""
        with contextlib.suppress(OSError, ValueError), path.open() as file:
            size, linger, read = parse_holding(file.read())
            self._cache += max(0.0, read - self._read.get(path.name, 0.0))
            self._read[path.name] = read
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._release_times.pop(path.name, None)
                return size
            if not size:
                return 0.0
            since = self._release_times.setdefault(path.name, time.monotonic())
            if time.monotonic() - since < linger:
                return size
            path.unlink()
            self._release_times.pop(path.name)
            self._read.pop(path.name)
        return 0.0


def parse_holding(text: str) -> tuple[float, float, float]:
    """GiB held, seconds of lingering and GiB read from a holder's file; zero for a missing word."""
    words = [*text.split()[:3], "0", "0", "0"]
    return float(words[0]), float(words[1]), float(words[2])
