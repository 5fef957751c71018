"""Text on the operator's terminal."""

from __future__ import annotations

import io
import os
import sys
import textwrap
from typing import Any

import click
from rich.console import Console


class _Output(io.FileIO):
    """A standard stream that outlives its reader: what nobody reads any more is thrown away."""

    is_unread = False

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as fault:
            # Of the file itself, so that the programs that we start outlive it, too. Where the disk
            # is full, the interpreter would try the rest again as it ends.
            with open(os.devnull, "wb") as nothing:  # noqa: PTH123
                os.dup2(nothing.fileno(), self.fileno())
            if not isinstance(fault, BrokenPipeError):
                raise
            _Output.is_unread = True
            return len(data)


def outlive_readers() -> None:
    """Go on when whoever reads our output has gone, as in `| head`.

    What a command does it does all the same, and its exit code is that of what it did.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # Not where a test, or somebody who calls us, has put another one; a terminal is no pipe.
        if stream is None or stream is not getattr(sys, f"__{name}__") or stream.isatty():
            continue
        stream.flush()
        file = io.BufferedWriter(_Output(stream.fileno(), "w", closefd=False))
        like = {key: getattr(stream, key) for key in ("encoding", "errors", "line_buffering")}
        setattr(sys, name, io.TextIOWrapper(file, write_through=stream.write_through, **like))


def nobody_reads() -> bool:
    """Whether a reader of our output has gone: who prints without end may end."""
    return _Output.is_unread


def console() -> Console:
    """Standard output; 80 columns where it is not a terminal, so that output can be compared."""
    # None where whoever started us has closed it.
    if sys.stdout and sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=80, color_system=None)


def is_narrow() -> bool:
    """Whether this is a phone: a table of several columns has no room."""
    return console().width < 60


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
