"""Run one program and turn its failure into a sentence."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence

from lab.core.errors import LabError


def run(argv: Sequence[str], *, stdin: str | None = None, check: bool = True) -> str:
    """Standard output of ``argv``; ``LabError`` with the last lines of its errors if it fails."""
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        if not check:
            return ""
        raise LabError(f"there is no program {argv[0]!r} on this machine") from None
    if check and done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise LabError(f"{shlex.join(argv)} ended with {done.returncode}: {' / '.join(said)}")
    return done.stdout
