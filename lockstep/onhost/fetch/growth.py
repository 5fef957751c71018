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
#: A walk takes this share of the time at most, however many files there are.
_SHARE = 0.1


@contextlib.contextmanager
def told(
    folder: Path,
    say: Callable[[str], None] | None = None,
    grown: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Say every 10 s, while the block runs, how long it has taken and what `folder` has gained.

    Args:
        folder: What is filled.
        say: Prints a line; None as all programs here do.
        grown: Called where the folder's size has changed since the last line.
    """
    over = threading.Event()
    arguments = (folder, over, say or output.say, grown)
    watcher = threading.Thread(target=_watch, args=arguments, name="growth", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextlib.contextmanager
def repeated(tell: Callable[[], None], period_s: float = PERIOD_S) -> Iterator[None]:
    """Call `tell` every `period_s` seconds while the block runs, and once at its good end."""
    over = threading.Event()

    def telling() -> None:
        while not over.wait(period_s):
            tell()

    teller = threading.Thread(target=telling, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
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


def _watch(
    folder: Path, over: threading.Event, say: Callable[[str], None], grown: Callable[[], None]
) -> None:
    began = time.monotonic()
    before = last = size(folder)
    walk = time.monotonic() - began
    while not over.wait(max(PERIOD_S, walk / _SHARE)):
        started = time.monotonic()
        now = size(folder)
        gained = now - before
        if now != last:
            grown()
        last = now
        walk = time.monotonic() - started
        passed = output.duration(time.monotonic() - began)
        # Pruning can make the folder smaller than it was.
        more = f"{folder.name} +{gained / 1e6:.0f} MB" if gained > 0 else "still at it"
        say(f"  {passed}: {more}")
