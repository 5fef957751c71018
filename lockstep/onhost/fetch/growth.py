"""Shows that a silent program is alive, by how much a folder that it fills has grown.

uv and git draw progress bars on a terminal and say nothing elsewhere, for minutes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lockstep.onhost.core import output

PERIOD_S = 10.0
#: Telling takes this share of the time at most, however many files a folder has.
_SHARE = 0.1


@contextlib.contextmanager
def told(folder: Path, grown: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Say every 10 s, while the block runs, how long it has taken and what `folder` has gained.

    `grown` is called where the folder's size has changed since the last line.
    """
    began = time.monotonic()
    before = last = size(folder)

    def tell() -> None:
        nonlocal last
        now = size(folder)
        if now != last:
            grown()
        last = now
        # Pruning can make the folder smaller than it was.
        gained = now - before
        more = f"{folder.name} +{gained / 1e6:.0f} MB" if gained > 0 else "still at it"
        output.say(f"  {output.duration(time.monotonic() - began)}: {more}")

    with repeated(tell, period_s=PERIOD_S, at_end=False):
        yield


@contextlib.contextmanager
def repeated(
    tell: Callable[[], None], period_s: float = PERIOD_S, *, at_end: bool = True
) -> Iterator[None]:
    """Call `tell` every `period_s` seconds while the block runs, and once at its good end."""
    over = threading.Event()

    def telling() -> None:
        took = 0.0
        while not over.wait(max(period_s, took / _SHARE)):
            started = time.monotonic()
            tell()
            took = time.monotonic() - started

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
    """Bytes of the files below `folder`; what vanishes meanwhile, or is not there, counts 0."""
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
