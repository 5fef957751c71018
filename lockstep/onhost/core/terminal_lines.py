"""Lines that fit the operator's terminal, down to a 40-column phone."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time

from lockstep.onhost.core import event_lines


def width() -> int:
    """Return the columns of the terminal, 80 if there is none."""
    return max(20, shutil.get_terminal_size((80, 24)).columns)


def wrap_text(text: str, columns: int, indent: str = "") -> list[str]:
    """Wrap `text` to lines of at most `columns`; continuation lines are indented by two more.

    Names with hyphens stay whole if they can, so that people can copy them.
    """
    wrapper = textwrap.TextWrapper(columns, indent, indent + "  ", break_on_hyphens=False)
    return wrapper.wrap(text) or [""]


def say(text: str, indent: str = "") -> None:
    """Print `text`, wrapped to the terminal unless a program reads."""
    for line in [text] if event_lines.has_event_reader() else wrap_text(text, width(), indent):
        event_lines.say(line)


def fold_text(text: str) -> str:
    """Return `text` with line breaks so that it fits the terminal; as it is for a program."""
    return text if event_lines.has_event_reader() else "\n".join(wrap_text(text, width()))


def bold(text: str) -> str:
    """Return `text` in bold on a terminal, unchanged elsewhere."""
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text


def moment_with_age(moment: float | None, now: float | None = None) -> str:
    """Format a moment as `08:10 (3 h 5 min)`, with the date if it is more than a day ago."""
    if moment is None:
        return "unknown"
    now = time.time() if now is None else now
    age = max(0.0, now - moment)
    pattern = "%H:%M" if age < 86400 else "%Y-%m-%d %H:%M"
    return f"{time.strftime(pattern, time.localtime(moment))} ({event_lines.duration(age)})"
