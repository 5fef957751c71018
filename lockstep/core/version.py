"""The version of this Lockstep: the number of an installation; in a checkout also the commit."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]


@cache
def version() -> str:
    """Return the version, as "0.1.0" or "0.1.0+g1a2b3c4d.changed".

    The part after the plus is that of a checkout: its commit, and whether files differ from the
    commit. PEP 440 calls such a version a local one.
    """
    number, commit = metadata.version("lockstep"), _commit()
    return f"{number}+{commit}" if commit else number


def _commit() -> str:
    """Return the commit of the checkout with this code; "" without one, or if git refuses it."""
    if not (_REPOSITORY / ".git").exists():
        return ""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=8", "--dirty=.changed"]
    try:
        result = subprocess.run(
            command, cwd=_REPOSITORY, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"g{result.stdout.strip()}" if result.returncode == 0 else ""
