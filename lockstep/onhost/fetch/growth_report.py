"""Reports that a silent program is alive, by the growth of a folder that it fills.

uv and git draw progress bars on a terminal and print nothing elsewhere, for minutes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lockstep.onhost.core import event_lines

PERIOD_S = 10.0
#: The largest share of the time that reporting takes, however many files a folder has.
_SHARE = 0.1


@contextlib.contextmanager
def report_growth(folder: Path, on_growth: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Print the time and the growth of `folder` every 10 s while the block runs.

    `on_growth` is called if the folder's size has changed since the last line.
    """
    began = time.monotonic()
    earlier_bytes = last = size(folder)

    def tell() -> None:
        nonlocal last
        now = size(folder)
        if now != last:
            on_growth()
        last = now
        # Pruning can make the folder smaller than it was.
        gained_bytes = now - earlier_bytes
        more = f"{folder.name} +{gained_bytes / 1e6:.0f} MB" if gained_bytes > 0 else "still at it"
        event_lines.say(f"  {event_lines.duration(time.monotonic() - began)}: {more}")

    with call_periodically(tell, period_s=PERIOD_S, at_end=False):
        yield


@contextlib.contextmanager
def call_periodically(
    tell: Callable[[], None], period_s: float = PERIOD_S, *, at_end: bool = True
) -> Iterator[None]:
    """Call `tell` every `period_s` seconds while the block runs, and once at its good end."""
    over = threading.Event()

    def telling() -> None:
        took = 0.0
        while not over.wait(max(period_s, took / _SHARE)):
            start_time = time.monotonic()
            tell()
            took = time.monotonic() - start_time

    teller = threading.Thread(target=telling, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
    if at_end:
        tell()


def size(folder: Path) -> int:
    """Return the bytes of the files below `folder`; missing or vanishing files count 0."""
    total = 0
    folders = [os.fspath(folder)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total
