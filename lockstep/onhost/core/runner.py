"""Other programs, run to their end within a time."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from lockstep.onhost.core import errors


def run(
    argv: Sequence[str], timeout: float = 60.0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return it, whatever its exit status.

    `env` is its whole environment; None: ours. Problem when the program is missing or does
    not end within `timeout` seconds.
    """
    try:
        return subprocess.run(
            list(argv), capture_output=True, text=True, errors="replace", timeout=timeout, env=env
        )
    except FileNotFoundError as error:
        raise errors.Problem(f"{argv[0]}: command not found") from error
    except subprocess.TimeoutExpired as error:
        raise errors.Problem(f"{argv[0]} did not answer within {timeout:.0f} s") from error


def must(*argv: str, timeout: float = 60.0) -> str:
    """What a command printed that has to succeed; Problem with the end of what it said if not."""
    done = run(list(argv), timeout)
    if done.returncode != 0:
        said = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise errors.Problem(f"{' '.join(argv)} failed: {said}")
    return done.stdout
