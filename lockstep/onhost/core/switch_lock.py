"""The switch lock: one switch at a time on a host, with the name of its operator.

The kernel drops the lock with its holder, however that dies. Only root can open it; the note of who
holds it is for every account.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from lockstep.onhost.core import clock, errors, file_lock, output

# A note goes an instant before its lock: who waited for its end is no second operator.
_GRACE_S = 1.0


@dataclass(frozen=True)
class Holder:
    """Who switches: process, user, wanted target (or `none`), since (Unix time, s)."""

    pid: int
    user: str
    target: str
    since: float

    def __str__(self) -> str:
        age = output.duration(max(0.0, time.time() - self.since))
        return f"{self.user} is switching to {self.target} since {age} (process {self.pid})"


class Locked(errors.Problem):
    """Somebody else holds the lock: `who`, in words."""

    def __init__(self, holder: Holder | None) -> None:
        self.who = str(holder) if holder else "somebody else is switching"
        super().__init__(
            f"{self.who}. Remedy: wait for it with --wait, or end it with switch.sh cancel",
            errors.EXIT_LOCKED,
        )


@contextmanager
def held(path: Path, user: str, target: str) -> Iterator[None]:
    """Hold the switch lock. Locked (exit code 75) when somebody else does."""
    who = {"user": user, "target": target, "since": time.time()}
    with file_lock.open_file(path) as file:
        _acquire(file, path)
        with file_lock.noted(path, who, mode=0o644):
            yield


def _acquire(file: TextIO, path: Path) -> None:
    until = clock.now() + _GRACE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if clock.now() >= until:
                raise Locked(holder(path)) from None
            clock.sleep(0.05)


def holder(path: Path) -> Holder | None:
    """Who holds the lock now, or None. Every account may ask."""
    said = file_lock.holder(path) or {}
    try:
        user, target = str(said["user"]), str(said["target"])
        return Holder(int(said["pid"]), user, target, float(said["since"]))
    except (ValueError, LookupError, TypeError):
        return None
