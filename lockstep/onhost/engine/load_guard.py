"""A guard of free pages while an engine loads: weights that stream in fill the page cache.

The gate drops the cache only before a start. A load of 60 to 100 GiB fills the cache again. Then
the driver finds no free block, and no error ends the engine
(tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark#19: the cure, and the minimum of 8 GiB).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lockstep.onhost.core import errors, meminfo

_EVERY_S = 1.0
# If dropping the cache does not help, doing so again at once only costs the engine its files.
_NO_HELP_S = 10.0
_TELL_EVERY_S = 30.0


@dataclass
class LoadGuard:
    """A guard that drops the page cache if MemFree is below `minimum_gib`; tests replace `now`."""

    minimum_gib: float
    tell: Callable[[str], None]
    proc: Path = Path("/proc")
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._rest_until = self._last_report = float("-inf")
        self._drops = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look once a second, in a thread, until the block ends."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_EVERY_S):
                self.check_free_memory()

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def check_free_memory(self) -> None:
        """Look once, and act; report the action at most once in 30 s."""
        earlier_free = self._free()
        if earlier_free >= self.minimum_gib or self.now() < self._rest_until:
            return
        due = self.now() - self._last_report >= _TELL_EVERY_S
        meminfo.free_pages(self.proc, self.tell if due else lambda _: None)
        self._drops += 1
        later_free = self._free()
        if later_free < self.minimum_gib:
            self._rest_until = self.now() + _NO_HELP_S
        if due:
            self._last_report = self.now()
            self.tell(
                f"{earlier_free:.1f} GiB free, less than {self.minimum_gib:.1f}: page cache "
                f"dropped, {later_free:.1f} GiB free now"
                + (f" (time {self._drops})" if self._drops > 1 else "")
            )

    def _free(self) -> float:
        """Return MemFree in GiB; infinite if it cannot be read, so that nothing is done."""
        try:
            return meminfo.memory(self.proc).free
        except (OSError, errors.Problem):
            return float("inf")
