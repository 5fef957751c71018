"""Other programs, run to their end within a time."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from lockstep.onhost.core import errors

# How long a program may take to be gone that was killed, seconds.
_KILLED_S = 1.0


def start(
    argv: Sequence[str], env: Mapping[str, str] | None = None, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Begin a command whose output is read. `env` is its whole environment; None: ours.

    Problem when the program is missing.
    """
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            list(argv), stdout=pipe, stderr=stderr, text=True, errors="replace", env=env
        )
    except FileNotFoundError as error:
        raise errors.Problem(f"{argv[0]}: command not found") from error


def run(
    argv: Sequence[str], timeout: float = 60.0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return it, whatever its exit status; `env` as for `start`.

    Problem when the program is missing or does not end within `timeout` seconds.
    """
    child = start(argv, env)
    try:
        out, said = child.communicate(timeout=timeout)
    except BaseException as error:
        child.kill()
        # One that hangs in a driver cannot be killed, and is not waited for.
        with suppress(subprocess.TimeoutExpired):
            child.wait(_KILLED_S)
        for end in (child.stdout, child.stderr):
            if end is not None:
                end.close()
        if isinstance(error, subprocess.TimeoutExpired):
            raise errors.Problem(f"{argv[0]} did not answer within {timeout:.0f} s") from error
        raise
    return subprocess.CompletedProcess(list(argv), child.returncode, out, said)


def must(*argv: str, timeout: float = 60.0) -> str:
    """What a command printed that has to succeed; Problem with the end of what it said if not."""
    done = run(list(argv), timeout)
    if done.returncode != 0:
        said = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise errors.Problem(f"{' '.join(argv)} failed: {said}")
    return done.stdout
