"""Locks on files, one program at a time; the kernel drops a lock when its holder ends.

Every account that can open a file can lock it, so the file of a lock belongs to one account. A note
beside the lock names its holder. Others read the note instead of trying the lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from lockstep.onhost.core import atomic_files, process_liveness


def open_file(path: Path) -> TextIO:
    """Open the file of a lock, and create it for its own account only if it is missing.

    Raises PermissionError if the file belongs to another account.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    file = os.fdopen(handle, "r+", encoding="utf-8")
    try:
        # Versions before 2026-11-26 created it for every account.
        os.fchmod(handle, 0o600)
    except BaseException:
        file.close()
        raise
    return file


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait for the exclusive lock on a file and hold it; create the file if it is missing."""
    with open_file(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def note_holder(path: Path, holder_fields: Mapping[str, Any], mode: int) -> Iterator[None]:
    """Name the holder in a note beside a lock of this process, for as long as the block runs."""
    process_fields = {"pid": os.getpid(), "start": process_liveness.start_ticks(os.getpid())}
    note = _note_path(path)
    atomic_files.write_json(note, {**holder_fields, **process_fields}, mode=mode)
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def holder(path: Path) -> dict[str, Any] | None:
    """Return the note beside a lock; None if nobody holds it, or its holder was killed."""
    note = atomic_files.read_json(_note_path(path))
    try:
        return note if process_liveness.is_alive(int(note["pid"]), int(note["start"])) else None
    except (TypeError, ValueError, LookupError):
        return None


def _note_path(path: Path) -> Path:
    return path.with_suffix(".json")
