"""An engine's reading of its weights, seen from outside: files in use, bytes, page cache.

What an engine has taken from a file stays in the page cache, where nobody needs it again. So each
file is let go as soon as no process maps it any more, and all of them when the engine is ready.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lockstep.onhost.core import config, layout
from lockstep.onhost.engine import living_processes, open_files
from lockstep.onhost.records import last_weight_loads
from lockstep.onhost.system import disk_read_ahead
from lockstep.onhost.weights import load_progress_text, model_files

# An engine that waits for something else reads a little now and then.
_READS_B_S = 16 * 2**20


@dataclass(frozen=True)
class LoadProgress:
    """Bytes read so far, of all, and per second since the last look at the progress."""

    done_bytes: int
    all_bytes: int
    bytes_per_s: float


@dataclass(frozen=True)
class _Look:
    time: float
    read_bytes: int | None


@dataclass
class LoadReading:
    """The reading of one model's weights; tests replace `now`."""

    model: config.Model
    paths: layout.Paths
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._files: dict[open_files.Inode, Path] = {}
        self._needs_bytes = 0
        for path in model_files.model_files(self.model, self.paths):
            with suppress(FileNotFoundError):
                self._needs_bytes += path.stat().st_size
                self._files[open_files.inode_of(path)] = path
        self.devices = list(dict.fromkeys(device for device, _ in self._files))
        self._has_mapped: set[open_files.Inode] = set()
        self._last = self._progress_look = self._look_at_devices()
        self._first: _Look | None = None
        self._end: _Look | None = None
        self._read_ahead_kib = 0

    def look(self) -> None:
        """See which files are in use, let go those that were mapped, and count what was read."""
        processes = living_processes.processes_of_model(self.model, self.paths)
        open_inodes, mapped_inodes = open_files.open_and_mapped(
            processes, self._files, self.paths.proc
        )
        in_use = open_inodes | mapped_inodes
        # A file that is open alone may be read for another process, or be mapped later.
        self._let_go(self._has_mapped - in_use)
        self._has_mapped = (self._has_mapped & in_use) | mapped_inodes
        now = self._look_at_devices()
        if in_use and self._first is None:
            # Reading began after the look before.
            self._first = self._progress_look = self._last
            self._read_ahead_kib = max(
                disk_read_ahead.read_ahead_kib(device, self.paths) for device in self.devices
            )
        if in_use and self._bytes_per_s(self._last, now) >= _READS_B_S:
            self._end = now
        self._last = now

    def let_go_all(self) -> None:
        """Have the page cache drop all of the model's files, but for pages that are mapped."""
        self._let_go(set(self._files))

    def progress(self) -> LoadProgress | None:
        """Return how far it is; None if nothing is being read, or its bytes cannot be counted."""
        since, self._progress_look = self._progress_look, self._last
        if self._first is None or self._last.read_bytes is None or self._last != self._end:
            return None
        done_bytes = self._bytes_between(self._first, self._last)
        return LoadProgress(done_bytes, self._needs_bytes, self._bytes_per_s(since, self._last))

    def record(self) -> last_weight_loads.LoadRecord | None:
        """Return what was read in which time; None if nothing was seen."""
        if self._first is None or self._end is None:
            return None
        device = self.devices[0]
        is_counted = self._end.read_bytes is not None
        return last_weight_loads.LoadRecord(
            model=self.model.name,
            at=time.time() - (self.now() - self._end.time),
            needs_bytes=self._needs_bytes,
            bytes=self._bytes_between(self._first, self._end) if is_counted else None,
            seconds=round(self._end.time - self._first.time, 1),
            device=f"{os.major(device)}:{os.minor(device)}",
            disk=disk_read_ahead.disk_name(device, self.paths),
            read_ahead_kib=self._read_ahead_kib,
        )

    def _look_at_devices(self) -> _Look:
        """Return the bytes that all of the devices have given until now; None if one has none."""
        total_bytes: int | None = 0 if self.devices else None
        for device in self.devices:
            count = disk_read_ahead.read_bytes(device, self.paths)
            total_bytes = None if count is None or total_bytes is None else total_bytes + count
        return _Look(self.now(), total_bytes)

    def _bytes_between(self, first: _Look, last: _Look) -> int:
        read = (last.read_bytes or 0) - (first.read_bytes or 0)
        # Others read from the disk too.
        return min(max(read, 0), self._needs_bytes)

    def _bytes_per_s(self, first: _Look, last: _Look) -> float:
        """Return the rate; infinite where nothing can be counted, so that time in use counts."""
        if first.read_bytes is None or last.read_bytes is None:
            return float("inf")
        read = last.read_bytes - first.read_bytes
        return read / max(last.time - first.time, 1e-6)

    def _let_go(self, inodes: set[open_files.Inode]) -> None:
        for inode in inodes:
            try:
                descriptor = os.open(self._files[inode], os.O_RDONLY)
            except OSError:
                continue
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def finished_load_text(record: last_weight_loads.LoadRecord, disk_mb_s: float | None = None) -> str:
    """Describe a load in one line, beside the MB/s that its disk gives, if that is known."""
    gib = record.needs_bytes if record.bytes is None else record.bytes
    steps = record.read_ahead_kib
    size = f"{steps // 1024} MiB" if steps >= 1024 else f"{steps} KiB"
    return (
        f"read {gib / 2**30:.1f} GiB of weights from {record.disk} in {record.seconds:.0f} s"
        + (
            f", {load_progress_text.rate_text(record.bytes / record.seconds, disk_mb_s)}"
            if record.bytes
            else ""
        )
        + (f", in steps of {size}" if steps else "")
    )
