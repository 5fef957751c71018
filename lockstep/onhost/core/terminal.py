"""Lines that fit the operator's terminal, down to a 40-column phone."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time

from lockstep.onhost.core import output


def width() -> int:
    """Columns of the terminal, 80 where there is none."""
    return max(20, shutil.get_terminal_size((80, 24)).columns)


def wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    """`text` as lines of at most `columns`; continuation lines are indented by two more.

    Names with hyphens stay whole where they can, for copying.
    """
    wrapper = textwrap.TextWrapper(columns, indent, indent + "  ", break_on_hyphens=False)
    return wrapper.wrap(text) or [""]


def say(text: str, indent: str = "") -> None:
    """Print `text` wrapped to the terminal."""
    for line in wrapped(text, width(), indent):
        output.say(line)


def folded(text: str) -> str:
    """`text` with line breaks so that it fits the terminal."""
    return "\n".join(wrapped(text, width()))


def bold(text: str) -> str:
    """`text` in bold on a terminal, as it is elsewhere."""
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text


def since(moment: float | None, now: float | None = None) -> str:
    """`08:10 (3 h 5 min)`, with the date when that was not within the last day."""
    if moment is None:
        return "unknown"
    now = time.time() if now is None else now
    age = max(0.0, now - moment)
    pattern = "%H:%M" if age < 86400 else "%Y-%m-%d %H:%M"
    return f"{time.strftime(pattern, time.localtime(moment))} ({output.duration(age)})"
