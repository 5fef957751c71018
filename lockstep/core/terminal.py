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
    """A standard stream that outlives its reader, and drops output that nobody reads."""

    is_unread = False

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as fault:
            # Replaces the file itself, so that the programs that we start outlive the reader too.
            # If the disk is full, the interpreter would otherwise try the rest again when it ends.
            with open(os.devnull, "wb") as null:  # noqa: PTH123
                os.dup2(null.fileno(), self.fileno())
            if not isinstance(fault, BrokenPipeError):
                raise
            _Output.is_unread = True
            return len(data)


def outlive_readers() -> None:
    """Keep running when the reader of our output has gone, as in `| head`.

    A command still does its work, and its exit code is that of the work.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # Leaves alone a stream that a test or a caller has replaced. A terminal is no pipe.
        if stream is None or stream is not getattr(sys, f"__{name}__") or stream.isatty():
            continue
        stream.flush()
        file = io.BufferedWriter(_Output(stream.fileno(), "w", closefd=False))
        like = {key: getattr(stream, key) for key in ("encoding", "errors", "line_buffering")}
        setattr(sys, name, io.TextIOWrapper(file, write_through=stream.write_through, **like))


def nobody_reads() -> bool:
    """Tell whether a reader of our output has gone, so that endless output may stop."""
    return _Output.is_unread


def console() -> Console:
    """Return a console for standard output; 80 columns without a terminal, to be comparable."""
    # The stream is None if the caller of the program has closed it.
    if sys.stdout and sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=80, color_system=None)


def is_narrow() -> bool:
    """Tell whether the terminal is a phone's, without room for a table of several columns."""
    return console().width < 60


def print_indented(text: str, by: int = 2) -> None:
    """Print text wrapped to the terminal, every line ``by`` columns in."""
    width = min(console().width, 100) - by
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    click.echo(textwrap.indent("\n".join(lines), " " * by))


def clock_text(seconds: float) -> str:
    """Return a duration as a clock shows it: 0:42, 17:40, 1:02:03."""
    minutes, seconds_left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"


def bytes_text(size: int) -> str:
    """Return a size in bytes in the unit that gives a readable number."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 2**power:
            return f"{size / 2**power:.1f} {unit}"
    return f"{size} B"
