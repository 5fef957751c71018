"""One program at a time, by a lock on a file that the kernel drops with its holder.

Whoever can open a file can lock it, so a lock is a file for its account alone. Who holds one is
said by a note beside it, which others may read: nobody takes a lock to see whether it is free.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from lockstep.onhost.core import atomic, process


def open_file(path: Path) -> TextIO:
    """Open the file of a lock, which is made where it is missing, for nobody but its account.

    PermissionError where it is another account's.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    file = os.fdopen(handle, "r+", encoding="utf-8")
    try:
        # Versions before 2026-11-26 made it for everybody.
        os.fchmod(handle, 0o600)
    except BaseException:
        file.close()
        raise
    return file


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Wait for the exclusive lock on a file, which is made where it is missing, and hold it."""
    with open_file(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def noted(path: Path, who: Mapping[str, Any], mode: int) -> Iterator[None]:
    """Say beside a lock that this process holds who holds it, for as long as the block runs."""
    mine = {"pid": os.getpid(), "start": process.start_of(os.getpid())}
    note = _note(path)
    atomic.write_json(note, {**who, **mine}, mode=mode)
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def holder(path: Path) -> dict[str, Any] | None:
    """What the note beside a lock says; None where nobody holds it, or its holder was killed."""
    said = atomic.read_json(_note(path))
    try:
        return said if process.is_alive(int(said["pid"]), int(said["start"])) else None
    except (TypeError, ValueError, LookupError):
        return None


def _note(path: Path) -> Path:
    return path.with_suffix(".json")
