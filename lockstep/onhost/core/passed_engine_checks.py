"""The cache of passed engine checks, by the hash of the question.

An image or an environment never changes, nor does its answer. So a host that goes back to an
earlier one need not ask again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic_files

_MOST = 16  # As many as the generations that a host may go back to.


def question_hash(question: str) -> str:
    """Return the hash of a question's text, by which a record names it."""
    return hashlib.sha256(question.encode()).hexdigest()


def has_passed(record: Mapping[str, Any] | None, question_digest: str) -> bool:
    """Tell whether a question passed without a fault, by its hash."""
    return record is not None and question_digest in passed_question_digests(record)


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Replace a record ("asked" and "faults") and keep the questions that passed before it."""
    try:
        previous_questions = passed_question_digests(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError):
        previous_questions = []
    earlier = [question for question in previous_questions if question != record["asked"]]
    atomic_files.write_json(path, {**record, "taken": earlier})


def passed_question_digests(record: Mapping[str, Any]) -> list[str]:
    """Return the digests of the last questions that passed, the newest first."""
    own = [record["asked"]] if record.get("faults") == [] and record.get("asked") else []
    return [*own, *record.get("taken", ())][:_MOST]
