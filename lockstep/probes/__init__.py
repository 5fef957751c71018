"""Small programs that read a host's state, one round trip each.

Each is sent to the host as it is (`python3 -c SOURCE JSON`) and prints one JSON document. Standard
library only, Python 3.11 or later, no imports from Lockstep: the host may be wiped.
"""

from __future__ import annotations

from importlib import resources


def source(name: str) -> str:
    """The text of one probe ("preflight")."""
    return (resources.files(__name__) / f"{name}.py").read_text(encoding="utf-8")
