"""The version of this Lockstep: of an installation its number, of a checkout its commit, too."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]


@cache
def version() -> str:
    """The number, as "0.1.0"; in a checkout with its commit and whether files differ from it, as
    "0.1.0+g1a2b3c4d.changed", which PEP 440 calls a local version."""
    number, commit = metadata.version("lockstep"), _commit()
    return f"{number}+{commit}" if commit else number


def _commit() -> str:
    """The commit of the checkout that this code is in; "" without one, or where git refuses it."""
    if not (_REPOSITORY / ".git").exists():
        return ""
    asked = ["git", "describe", "--always", "--exclude=*", "--abbrev=8", "--dirty=.changed"]
    try:
        done = subprocess.run(
            asked, cwd=_REPOSITORY, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"g{done.stdout.strip()}" if done.returncode == 0 else ""
