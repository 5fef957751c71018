"""Questions to an engine about its recipes, in a venv or inside an image."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lockstep.units.variants import Variant


class Form(NamedTuple):
    """How an engine would be started: its whole command line and its environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]

    def asked(self) -> dict[str, Any]:
        """As the programs on the host read it."""
        return {"argv": list(self.argv), "environment": dict(self.environment)}


def question(name: str, form: Form, without_flag: Form) -> dict[str, Any]:
    """One recipe, as `Engine.fault` reads it.

    Args:
        name: The recipe's.
        form: How it runs on an engine whose parser takes the freeze guard's flag.
        without_flag: How it runs on another one. The engine itself says which it is, so that one
            question is enough.
    """
    asked = {"name": name, **form.asked()}
    return asked if form == without_flag else {**asked, "without_flag": without_flag.asked()}


def image_questions(variants: Iterable[Variant], without_flag: Iterable[Variant]) -> dict[str, str]:
    """Digest of each image → what `image_answer` reads: command lines and variables as they
    will stand in the units, so that any change of them is a new question.

    Args:
        variants: For engines whose parser takes the freeze guard's flag.
        without_flag: The same for engines whose parser does not.
    """
    asked: dict[str, list[dict[str, Any]]] = {}
    for one, other in zip(variants, without_flag, strict=True):
        if one.image:
            forms = [Form(each.engine_argv, dict(each.environment)) for each in (one, other)]
            asked.setdefault(one.image.partition("@")[2], []).append(
                question(one.recipe.name, *forms)
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
        record = records.get(digest) or {}
        same = record.get("asked") == hashlib.sha256(text.encode()).hexdigest()
        if not same or record.get("faults") != []:
            found.append(digest)
    return found
