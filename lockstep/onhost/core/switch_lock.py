"""The switch lock: one switch at a time on a host, with the name of its operator.

The kernel drops the lock when its holder ends in any way. Only root can open the lock. Every
account can read the note that names the holder.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from lockstep.onhost.core import clock, errors, event_lines, file_lock

# A note is removed an instant before its lock: waiting for that is no second switch.
_GRACE_S = 1.0


@dataclass(frozen=True)
class LockHolder:
    """The holder of the lock: process, user, wanted model (or `none`), start (Unix time, s)."""

    pid: int
    user: str
    model: str
    since: float

    def __str__(self) -> str:
        age = event_lines.duration(max(0.0, time.time() - self.since))
        return f"{self.user} is switching to {self.model} since {age} (process {self.pid})"


class SwitchUnderWay(errors.Problem):
    """The refusal because somebody else holds the lock; `holder_text` names them."""

    def __init__(self, holder: LockHolder | None) -> None:
        self.holder_text = str(holder) if holder else "somebody else is switching"
        super().__init__(
            f"{self.holder_text}. Remedy: wait for it with --wait, or end it with switch.sh cancel",
            errors.EXIT_LOCKED,
        )


@contextmanager
def hold_lock(path: Path, user: str, model: str) -> Iterator[None]:
    """Hold the switch lock; raise SwitchUnderWay (exit code 75) if somebody else holds it."""
    holder_fields = {"user": user, "model": model, "since": time.time()}
    with file_lock.open_file(path) as file:
        _acquire(file, path)
        with file_lock.note_holder(path, holder_fields, mode=0o644):
            yield


def _acquire(file: TextIO, path: Path) -> None:
    until = clock.now() + _GRACE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if clock.now() >= until:
                raise SwitchUnderWay(holder(path)) from None
            clock.sleep(0.05)


def holder(path: Path) -> LockHolder | None:
    """Return the present holder of the lock, or None; every account may ask."""
    note = file_lock.holder(path) or {}
    try:
        user, model = str(note["user"]), str(note["model"])
        return LockHolder(int(note["pid"]), user, model, float(note["since"]))
    except (ValueError, LookupError, TypeError):
        return None
