"""Ends what a test process has started, and what that has started, when it is over or was killed.

usage: left-behind MARK    started by `ended`, which keeps the other end of standard input

What belongs to a test process is known by its environment: it is inherited by whatever starts
something in turn, also by what goes into a session of its own and is nobody's child any more.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

NAME = "LOCKSTEP_TEST_PROCESS"


@contextlib.contextmanager
def ended() -> Iterator[None]:
    """End what is started within the block at its end, or when this process is no more."""
    mark = secrets.token_hex(8)
    # In a session of its own: what kills a whole group does not kill it too.
    with subprocess.Popen(
        [sys.executable, "-IS", __file__, mark],
        stdin=subprocess.PIPE,
        env=outside(),
        start_new_session=True,
    ):
        before = os.environ.get(NAME)
        os.environ[NAME] = mark
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(NAME, None)
            else:
                os.environ[NAME] = before


def inside() -> dict[str, str]:
    """For the environment of a long-lived process that inherits none."""
    return {NAME: os.environ[NAME]} if NAME in os.environ else {}


def outside() -> dict[str, str]:
    """The environment of what may outlive the test process, as a lab that is kept."""
    return {name: value for name, value in os.environ.items() if name != NAME}


def end_all(mark: str) -> None:
    """Kill every process with this mark, until there is none."""
    wanted = f"{NAME}={mark}".encode()
    # What was killed is there until its parent, or init, has waited for it; it has no environment.
    while found := [pid for pid in _processes() if wanted in _environment(pid)]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def main(mark: str) -> int:
    """Wait for the end of whoever holds our standard input."""
    sys.stdin.read()
    end_all(mark)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
