"""One host's state in one round trip: what `lockstep diff` and `lockstep evidence` send."""

from __future__ import annotations

from typing import Any

from lockstep.files import sent


def document(asked: dict[str, Any], program: str = "snapshot") -> str:
    """What `sent.COMMAND` reads.

    Args:
        asked: The question.
        program: The module that answers it: "snapshot" or "evidence".
    """
    return sent.document(f"lockstep.snapshot.{program}", asked)
