"""What the engine inside each image is asked about the recipes that are to run on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.variants import Variant


def image_questions(variants: Iterable[Variant]) -> dict[str, str]:
    """Digest of each image → what `image_answer.py` reads: command lines and variables as they
    will stand in the units, so that any change of them is a new question."""
    asked: dict[str, list[dict[str, Any]]] = {}
    for variant in variants:
        if variant.image:
            asked.setdefault(variant.image.partition("@")[2], []).append(
                {
                    "name": variant.recipe.name,
                    "argv": list(variant.engine_argv),
                    "environment": dict(variant.environment),
                }
            )
    return {digest: json.dumps(recipes, indent=1) + "\n" for digest, recipes in asked.items()}


def unasked(questions: Mapping[str, str], records: Mapping[str, Any]) -> list[str]:
    """Digests whose engine has not taken exactly these recipes yet.

    Args:
        questions: As `image_questions` gives them.
        records: Digest → what `image_check.py` keeps, None where it was never asked.
    """
    found = []
    for digest, text in questions.items():
        record = records.get(digest) or {}
        same = record.get("asked") == hashlib.sha256(text.encode()).hexdigest()
        if not same or record.get("faults") != []:
            found.append(digest)
    return found
