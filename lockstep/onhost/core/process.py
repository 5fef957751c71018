"""Whether a process that something on disk names is still the one that wrote it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
# Of /proc/PID/stat behind the name, which may hold spaces: proc(5) counts them from the state, 3.
_STARTED = 22 - 3


def start_of(pid: int) -> int:
    """When a process began, in clock ticks since boot; 0 where it cannot be seen."""
    with suppress(OSError, ValueError, IndexError):
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[_STARTED])
    return 0


def is_alive(pid: int, start: int) -> bool:
    """Whether the process `pid` that began at `start` lives.

    Units of ours see no process of another account in /proc. For them its number alone tells, which
    the kernel gives out again only after all others.
    """
    if pid <= 0:
        return False
    if seen := start_of(pid):
        return seen == start
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
