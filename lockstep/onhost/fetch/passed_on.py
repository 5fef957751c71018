"""Runs a command whose output goes straight on, and keeps the end of what it complained of."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence

#: Lines; uv's reason for a failure is among its last ones, after the output of a failed build.
KEPT = 200


def run(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit code, and the end of standard error. OSError when it cannot be run.

    Args:
        argv: Program and arguments.
        environment: All its variables.
    """
    last: deque[str] = deque(maxlen=KEPT)
    with subprocess.Popen(
        argv, env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            sys.stderr.flush()
            last.append(line)
    return process.returncode, "".join(last)
