"""Keep pages free while an engine loads: weights that stream in fill the page cache.

The gate drops the cache before a start only. A load of 60 to 100 GiB fills it anew, and the driver
then finds no free block, without any error that ends the engine
(tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark#19: the cure, and the floor of 8 GiB).
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
# Where giving up the cache does not help, doing so again at once only costs the engine its files.
_NO_HELP_S = 10.0
_TELL_EVERY_S = 30.0


@dataclass
class LoadGuard:
    """Drops the page cache whenever MemFree is below `floor_gib`; `now` is replaced in tests."""

    floor_gib: float
    tell: Callable[[str], None]
    proc: Path = Path("/proc")
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._rest_until = self._told = float("-inf")
        self._drops = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look once a second, in a thread, until the block is left."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_EVERY_S):
                self.look()

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def look(self) -> None:
        """Look once, and act; what it did is said at most once in 30 s."""
        before = self._free()
        if before >= self.floor_gib or self.now() < self._rest_until:
            return
        due = self.now() - self._told >= _TELL_EVERY_S
        meminfo.free_pages(self.proc, self.tell if due else lambda _: None)
        self._drops += 1
        after = self._free()
        if after < self.floor_gib:
            self._rest_until = self.now() + _NO_HELP_S
        if due:
            self._told = self.now()
            self.tell(
                f"{before:.1f} GiB free, less than {self.floor_gib:.1f}: page cache dropped, "
                f"{after:.1f} GiB free now" + (f" (time {self._drops})" if self._drops > 1 else "")
            )

    def _free(self) -> float:
        """MemFree, GiB; infinite where it cannot be read, which nothing is done about."""
        try:
            return meminfo.memory(self.proc).free
        except (OSError, errors.Problem):
            return float("inf")
