"""Text on the operator's terminal."""

from __future__ import annotations

import sys
import textwrap

import click
from rich.console import Console


def console() -> Console:
    """Standard output; 80 columns where it is not a terminal, so that output can be compared."""
    # None where whoever started us has closed it.
    if sys.stdout and sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=80, color_system=None)


def indented(text: str, by: int = 2) -> None:
    """Text wrapped to the terminal, every line ``by`` columns in."""
    width = min(console().width, 100) - by
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    click.echo(textwrap.indent("\n".join(lines), " " * by))


def clock_text(seconds: float) -> str:
    """A length of time as a clock shows it: 0:42, 17:40, 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def bytes_text(size: int) -> str:
    """Bytes in the unit that gives a readable number."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 2**power:
            return f"{size / 2**power:.1f} {unit}"
    return f"{size} B"
