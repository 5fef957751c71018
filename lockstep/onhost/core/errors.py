"""Errors for the operator, and the exit codes of the programs on a Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
# Of switch.sh: the requested switch failed, and ...
EXIT_FALLBACK = 3  # its fallback is hot
EXIT_NOTHING_HOT = 4  # no model is hot
EXIT_CANCELLED = 5  # somebody cancelled it, and everything is as before
# sysexits.h: EX_TEMPFAIL ("try again later") and EX_NOPERM.
EXIT_LOCKED = 75
EXIT_NOT_PERMITTED = 77


def why(error: BaseException) -> str:
    """Return an error's reason for people: without its number, and never empty."""
    reason = getattr(error, "reason", None) or error
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__


def why_with_kind(error: BaseException) -> str:
    """Return an error's kind and its reason, in at most 200 characters."""
    return f"{type(error).__name__}: {why(error)}"[:200]


class Problem(Exception):
    """An error for the operator: what was expected, what was found, and the remedy.

    `code` is the exit code of the program that prints it.
    """

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


def run_main(
    program: str, main: Callable[[], int], shape: Callable[[str], str] = lambda text: text
) -> int:
    """Run `main`, and turn a Problem or Ctrl-C into a message on stderr and an exit code.

    `shape` makes the message fit its reader.
    """
    try:
        return main()
    except Problem as problem:
        print(shape(f"{program}: {problem}"), file=sys.stderr, flush=True)
        return problem.code
    except KeyboardInterrupt:
        return 130
