"""Execution of other programs to their end, within a time limit."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from lockstep.onhost.core import clock, errors

# Seconds to wait for a killed program to be gone.
_KILLED_S = 1.0
# Seconds between two looks meanwhile.
_LOOK_S = 1.0


def start(
    argv: Sequence[str], env: Mapping[str, str] | None = None, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start a command whose output is read; raise Problem if the program is missing.

    `env` is its whole environment; None means ours.
    """
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            list(argv), stdout=pipe, stderr=stderr, text=True, errors="replace", env=env
        )
    except FileNotFoundError as error:
        raise errors.Problem(f"{argv[0]}: command not found") from error


def run(
    argv: Sequence[str],
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    look: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return the result, whatever its exit status.

    `env` is as for `start`. `look` is called every second meanwhile; what it raises ends the
    command. Raises Problem if the program is missing or does not end within `timeout` seconds.
    """
    child = start(argv, env)
    until = clock.now() + timeout
    try:
        while True:
            if look is not None:
                look()
            try:
                part_s = timeout if look is None else min(timeout, _LOOK_S)
                out, error_output = child.communicate(timeout=part_s)
                break
            except subprocess.TimeoutExpired:
                if look is None or clock.now() >= until:
                    raise
    except BaseException as error:
        child.kill()
        # A program that hangs in a driver cannot be killed, so this does not wait for it.
        with suppress(subprocess.TimeoutExpired):
            child.wait(_KILLED_S)
        for end in (child.stdout, child.stderr):
            if end is not None:
                end.close()
        if isinstance(error, subprocess.TimeoutExpired):
            raise errors.Problem(f"{argv[0]} did not answer within {timeout:.0f} s") from error
        raise
    return subprocess.CompletedProcess(list(argv), child.returncode, out, error_output)


def run_or_raise(*argv: str, timeout: float = 60.0) -> str:
    """Return the output of a command; raise Problem with its last three lines if it fails."""
    result = run(list(argv), timeout)
    if result.returncode != 0:
        message = " / ".join((result.stderr or result.stdout).strip().splitlines()[-3:])
        raise errors.Problem(f"{' '.join(argv)} failed: {message}")
    return result.stdout
