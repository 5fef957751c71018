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


@contextmanager
def hold_lock(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Hold the lock in another process, until the block ends or the process is waited for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-IS", "-c", _HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
