"""Take a test's lab down as soon as the test run is over, whatever ended it.

usage: take-down NAME    started by conftest.py, which keeps the other end of standard input
"""

import subprocess
import sys
import time
from pathlib import Path

_COPIES_S = 180.0


def main(name: str) -> int:
    """Wait for the end of the run that holds our standard input; then no lab is left."""
    sys.stdin.read()
    lockstep = Path(sys.executable).with_name("lockstep")
    argv = [str(lockstep), "lab", "down", "--name", name, "--delete"]
    give_up = time.monotonic() + _COPIES_S
    while True:
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
        # Refused while there are copies of it, which processes like this one take down now.
        if result.returncode == 0 or time.monotonic() > give_up:
            sys.stderr.write(result.stderr if result.returncode else "")
            return result.returncode
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
