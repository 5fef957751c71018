"""Which questions an engine has taken: an image or an environment never changes, nor does its word.

So a host that returns to what it was need not ask again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic

_MOST = 16  # As many as a host may have generations to return to.


def digest(question: str) -> str:
    """What a record says that it was asked: the hash of the text."""
    return hashlib.sha256(question.encode()).hexdigest()


def has(record: Mapping[str, Any] | None, asked: str) -> bool:
    """Whether a question was taken without a fault; `asked` is its `digest`."""
    return record is not None and asked in every(record)


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Replace a record ("asked" and "faults"), with the questions that were taken before it."""
    try:
        before = every(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError):
        before = []
    earlier = [each for each in before if each != record["asked"]]
    atomic.write_json(path, {**record, "taken": earlier[:_MOST]})


def every(record: Mapping[str, Any]) -> list[str]:
    """All questions that were taken, the newest first."""
    own = [record["asked"]] if record.get("faults") == [] and record.get("asked") else []
    return [*own, *record.get("taken", ())]
