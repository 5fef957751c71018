"""Lines for the readers of a program's output."""

from __future__ import annotations

import os
import sys

_audience = {"left": False}


def say(line: str) -> None:
    """Print one line at once; a reader that went away (closed terminal) is no error."""
    try:
        print(line, flush=True)
    except OSError:
        _audience["left"] = True
        # Without this, Python tries again at exit and ends with status 120.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def has_lost_reader() -> bool:
    """Tell whether an earlier `say` found that its reader had gone away."""
    return _audience["left"]


def duration(seconds: float) -> str:
    """Format a length of time for people: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    total = int(seconds)
    if total < 100:
        return f"{total} s"
    minutes = total // 60
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
