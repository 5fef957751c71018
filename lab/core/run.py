"""Run one program and turn its failure into a sentence."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence

from lab.core.errors import LabError


def run(argv: Sequence[str], *, stdin: str | None = None, check: bool = True) -> str:
    """Standard output of ``argv``; ``LabError`` with the last lines of its errors if it fails."""
    try:
        result = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        if not check:
            return ""
        raise LabError(f"there is no program {argv[0]!r} on this machine") from None
    if check and result.returncode != 0:
        last_lines = (result.stderr.strip() or result.stdout.strip()).splitlines()[-3:]
        raise LabError(
            f"{shlex.join(argv)} ended with {result.returncode}: {' / '.join(last_lines)}"
        )
    return result.stdout
