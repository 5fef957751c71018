"""Ends the processes that a test process has started, also indirectly, when it ends or is killed.

usage: left-behind MARK    started by `end_on_exit`, which keeps the other end of standard input

A process is recognised by a mark in its environment. Children inherit the mark, also a process in
a session of its own whose parent is gone.
"""

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
def end_on_exit() -> Iterator[None]:
    """End the processes started within the block at its end, or when this process is gone."""
    mark = secrets.token_hex(8)
    # A session of its own keeps it alive when the whole process group is killed.
    with subprocess.Popen(
        [sys.executable, "-IS", __file__, mark],
        stdin=subprocess.PIPE,
        env=outside(),
        start_new_session=True,
    ):
        os.environ[NAME] = mark
        try:
            yield
        finally:
            os.environ.pop(NAME, None)


def outside() -> dict[str, str]:
    """The environment of a process that may outlive the test process, as a lab that is kept."""
    return {name: value for name, value in os.environ.items() if name != NAME}


def end_all(mark: str) -> None:
    """Kill every process with this mark, until there is none."""
    marked_entry = f"{NAME}={mark}".encode()
    # A killed process remains until its parent, or init, has waited for it, without environment.
    while pids := [pid for pid in _processes() if marked_entry in _environment(pid)]:
        for pid in pids:
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
    """Wait until the other end of our standard input is closed, then end the marked processes."""
    sys.stdin.read()
    end_all(mark)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
