"""How a program of this package is started on a Spark."""

from __future__ import annotations

import argparse
import sys

from lockstep.onhost.core import errors

PYTHON = "/usr/bin/python3"
#: Where the deploy puts the package; Python runs the folder's `__main__.py`.
PROGRAMS = "/usr/local/lib/lockstep"


def command(word: str, *arguments: str, python: str = PYTHON) -> tuple[str, ...]:
    """The argument list that runs one program, by its word in `__main__.py`.

    `python`: the system's has nothing but the standard library.
    """
    return (python, PROGRAMS, word, *arguments)


def usage(doc: str | None) -> int:
    """Print a module's docstring to whoever used its program wrongly; the exit code for that."""
    print((doc or "").strip(), file=sys.stderr)
    return errors.EXIT_USAGE


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser of a program's words, whose help is the docstring of its module as it stands."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
