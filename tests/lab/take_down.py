"""Take a test's lab down as soon as the test run is over, whatever ended it.

usage: take_down.py NAME    started by conftest.py, which keeps the other end of standard input
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(name: str) -> int:
    """Wait for the end of the run that holds our standard input; then no lab is left."""
    sys.stdin.read()
    lockstep = Path(sys.executable).with_name("lockstep")
    argv = [str(lockstep), "lab", "down", "--name", name, "--delete"]
    return subprocess.run(argv, stdout=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
