"""A process that holds a lock as apt and dpkg do: fcntl, on the whole file."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = """\
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


class LockProcess:
    """A process that holds the lock until `release`."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-IS", "-c", _HOLD, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout and self._process.stdout.readline() == "held\n"
        self.pid = self._process.pid

    def release(self) -> None:
        """End the process; the kernel has freed the lock when this returns."""
        self._process.communicate()


@contextmanager
def hold_lock(path: Path) -> Iterator[LockProcess]:
    """Hold the lock in another process, until the block ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    process = LockProcess(path)
    try:
        yield process
    finally:
        process.release()
