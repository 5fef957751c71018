"""How a program of this package is started on a Spark."""

from __future__ import annotations

PYTHON = "/usr/bin/python3"
#: Where the deploy puts the package; Python runs the folder's `__main__.py`.
PROGRAMS = "/usr/local/lib/lockstep"


def command(word: str, *arguments: str, python: str = PYTHON) -> tuple[str, ...]:
    """The argument list that runs one program.

    Args:
        word: Its name in `__main__.py`.
        arguments: Its own.
        python: The interpreter; the system's has nothing but the standard library.
    """
    return (python, PROGRAMS, word, *arguments)
