"""Processes of the host: whether one that a file names still runs, and the variables of one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
# Fields of /proc/PID/stat behind the name, which may hold spaces; proc(5) counts them from the
# state, 3.
_START_FIELD = 22 - 3


def start_ticks(pid: int) -> int:
    """Return the start of a process in clock ticks since boot; 0 if the process cannot be seen."""
    with suppress(OSError, ValueError, IndexError):
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[_START_FIELD])
    return 0


def is_alive(pid: int, start: int) -> bool:
    """Tell whether the process `pid` that began at `start` is alive.

    Our units do not see processes of other accounts in /proc. For those only the number is
    compared, which the kernel gives out again after all other numbers.
    """
    if pid <= 0:
        return False
    if current_start := start_ticks(pid):
        return current_start == start
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def variables(pid: int | str, proc: Path = _PROC) -> dict[str, str]:
    """Return the variables with which a process was started; raise OSError if it is gone."""
    text = (proc / str(pid) / "environ").read_text(encoding="utf-8", errors="replace")
    return dict(entry.partition("=")[::2] for entry in text.split("\0"))
