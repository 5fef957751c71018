"""The switch lock: one switch at a time on a host, with the name of its operator.

The kernel drops the lock with its holder, however that dies; the file's text only says who it was.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from lockstep.onhost.core import errors, output

# `holder` takes a shared lock for an instant; that must not look like a second operator.
_GRACE_S = 1.0


@dataclass(frozen=True)
class Holder:
    """Who switches: process, user, wanted target (or `none`), since (Unix time, s)."""

    pid: int
    user: str
    target: str
    since: float

    def __str__(self) -> str:
        if not self.pid:
            return "somebody else is switching"
        age = output.duration(max(0.0, time.time() - self.since))
        return f"{self.user} is switching to {self.target} since {age} (process {self.pid})"


class Locked(errors.Problem):
    """Somebody else holds the lock: `who`, in words."""

    def __init__(self, holder: Holder | None) -> None:
        self.who = str(holder) if holder else "somebody else is switching"
        super().__init__(
            f"{self.who}. Remedy: wait for it with --wait, watch it with switch.sh status",
            errors.EXIT_LOCKED,
        )


@contextmanager
def held(path: Path, user: str, target: str) -> Iterator[None]:
    """Hold the switch lock. Locked (exit code 75) when somebody else does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        _acquire(file)
        file.truncate(0)
        json.dump(asdict(Holder(os.getpid(), user, target, time.time())), file)
        file.flush()
        yield
        file.truncate(0)


def _acquire(file: TextIO) -> None:
    until = time.monotonic() + _GRACE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise Locked(_read(file)) from None
            time.sleep(0.05)


def holder(path: Path) -> Holder | None:
    """Who holds the lock now, or None. Needs no right but to read the file."""
    try:
        with path.open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read(file) or Holder(0, "", "", time.time())
    except OSError:
        pass
    return None


def _read(file: TextIO) -> Holder | None:
    file.seek(0)
    try:
        data = json.loads(file.read())
        user, target = str(data["user"]), str(data["target"])
        return Holder(int(data["pid"]), user, target, float(data["since"]))
    except (ValueError, LookupError, TypeError):
        return None
