"""Questions to an engine about its recipes, in a venv or inside an image."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.onhost.core import taken
from lockstep.units.variants import Variant


def image_questions(variants: Iterable[Variant]) -> dict[str, str]:
    """Digest of each image → what `image_answer` reads: command lines and variables as they
    will stand in the units, so that any change of them is a new question."""
    asked: dict[str, list[dict[str, Any]]] = {}
    for one in variants:
        if one.image:
            asked.setdefault(one.image.partition("@")[2], []).append(
                {
                    "name": one.recipe.name,
                    "argv": list(one.engine_argv),
                    "environment": dict(one.environment),
                }
            )
    return {digest: json.dumps(recipes, indent=1) + "\n" for digest, recipes in asked.items()}


def unasked(questions: Mapping[str, str], records: Mapping[str, Any]) -> list[str]:
    """Digests whose engine has not taken exactly these recipes yet.

    Args:
        questions: As `image_questions` gives them.
        records: Digest → what `image_check` keeps, None where it was never asked.
    """
    found = []
    for digest, text in questions.items():
        if not taken.has(records.get(digest), taken.digest(text)):
            found.append(digest)
    return found
