"""The command lines and parsers of the programs on a Spark."""

from __future__ import annotations

import argparse
import sys

from lockstep.onhost.core import errors

PYTHON = "/usr/bin/python3"
#: Where the deploy puts the package; Python runs the folder's `__main__.py`.
PROGRAMS = "/usr/local/lib/lockstep"


def command(word: str, *arguments: str, python: str = PYTHON) -> tuple[str, ...]:
    """Return the argument list that runs one program, by its word in `__main__.py`.

    `python`: the system's Python has nothing but the standard library.
    """
    return (python, PROGRAMS, word, *arguments)


def print_usage(doc: str | None) -> int:
    """Print a module's docstring on stderr after a wrong use, and return the exit code for it."""
    print((doc or "").strip(), file=sys.stderr)
    return errors.EXIT_USAGE


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the docstring of the program's module, unchanged."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
