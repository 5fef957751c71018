"""A guard over an engine's load: large reads, and free pages while weights fill the page cache.

The gate drops the cache only before a start. A load of 60 to 100 GiB fills the cache again. Then
the driver finds no free block, and no error ends the engine
(tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark#19: the cure, and the minimum of 8 GiB).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import isfinite

from lockstep.onhost.core import config, errors, layout, unified_memory
from lockstep.onhost.engine import weight_reading
from lockstep.onhost.records import last_weight_loads
from lockstep.onhost.system import disk_read_ahead
from lockstep.onhost.weights import disk_rate

EVERY_S = 0.25
# What a disk of 8 GB/s reads meanwhile.
_ROOM_GIB = 2.0
# The kernel lists all mappings of an engine.
_FILES_EVERY_S = 1.0
_PROGRESS_EVERY_S = 10.0
# If dropping the cache does not help, doing so again at once only costs the engine its files.
_NO_HELP_S = 10.0
_TELL_EVERY_S = 30.0
_STOP_S = 10.0
# A load that is over at once tells nothing of a disk.
_LEAST_TOLD_BYTES = 100 * 2**20


@dataclass
class LoadGuard:
    """A guard over the load of one model; tests replace `now`.

    Weights that the engine has taken are let go. Near the model's minimum of MemFree the disks
    have their own read-ahead, and below it the page cache is dropped.
    """

    model: config.Model
    paths: layout.Paths
    tell: Callable[[str], None]
    say_progress: Callable[[weight_reading.LoadProgress], None] = lambda _: None
    now: Callable[[], float] = time.monotonic
    reading: weight_reading.LoadReading = field(init=False)

    def __post_init__(self) -> None:
        self.reading = weight_reading.LoadReading(self.model, self.paths, self.now)
        self._rest_until = self._last_report = self._last_files = float("-inf")
        self._last_progress = self.now()
        self._last_free = self._free_gib()
        self._drops = 0
        self._is_raised = True

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look 4 times a second, in a thread, until the block ends; then leave nothing set."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(EVERY_S):
                self.look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_STOP_S)
            self.finish()

    def look(self) -> None:
        """Look once: at the memory, and each second, or if memory is short, at the files."""
        self.free_memory_if_low()
        if self._is_raised and self.now() - self._last_files < _FILES_EVERY_S:
            return
        self._last_files = self.now()
        # A control group may go while it is read.
        with suppress(OSError):
            self.reading.look()
        if self.now() - self._last_progress >= _PROGRESS_EVERY_S:
            self._last_progress = self.now()
            if progress := self.reading.progress():
                self.say_progress(progress)

    def finish(self) -> None:
        """Let all of the model's files go, put the read-ahead back, and record the load."""
        self.reading.let_go_all()
        disk_read_ahead.put_back(self.paths, self.tell, self.model.name)
        if record := self.reading.record():
            disk_mb_s = disk_rate.rate_of(self.paths, record.device)
            if record.needs_bytes >= _LEAST_TOLD_BYTES:
                self.tell(weight_reading.finished_load_text(record, disk_mb_s))
            try:
                last_weight_loads.record_load(self.paths, record)
            except OSError as error:
                self.tell(f"not noted in {self.paths.loads}: {errors.why(error)}")

    def free_memory_if_low(self) -> None:
        """Look once at MemFree, and act; report the action at most once in 30 s."""
        free, minimum_gib = self._free_gib(), self.model.load_free_gib
        # Until the next look it may fall as far as since the last one.
        fall = max(0.0, self._last_free - free) if isfinite(self._last_free) else 0.0
        self._set_read_ahead_raised(minimum_gib <= 0 or free - fall >= minimum_gib + _ROOM_GIB)
        self._last_free = free
        if free >= minimum_gib or self.now() < self._rest_until:
            return
        due = self.now() - self._last_report >= _TELL_EVERY_S
        unified_memory.drop_and_compact_cache(self.paths.proc, self.tell if due else lambda _: None)
        self._drops += 1
        self._last_free = self._free_gib()
        if self._last_free < minimum_gib:
            self._rest_until = self.now() + _NO_HELP_S
        if due:
            self._last_report = self.now()
            self.tell(
                f"{free:.1f} GiB free, less than {minimum_gib:.1f}: page cache "
                f"dropped, {self._last_free:.1f} GiB free now"
                + (f" (time {self._drops})" if self._drops > 1 else "")
            )

    def _set_read_ahead_raised(self, is_raised: bool) -> None:
        if is_raised == self._is_raised:
            return
        self._is_raised = is_raised
        try:
            disk_read_ahead.set_recorded_disks(is_raised, self.paths)
        except OSError as error:
            self.tell(f"read-ahead not changed: {error.filename}: {errors.why(error)}")

    def _free_gib(self) -> float:
        """Return MemFree in GiB; infinite if it cannot be read, so that nothing is done."""
        try:
            return unified_memory.memory(self.paths.proc).free
        except (OSError, errors.Problem):
            return float("inf")
