"""Ask an engine, inside its image, whether it accepts the recipes that are to run on it.

usage: image-answer ENGINE QUESTION.json

QUESTION.json is a list of recipes in the form of `Engine.fault`. The last line of standard output
is JSON: {"version", "faults", "unanswered"}, where "unanswered" is the reason why the engine could
not be asked, or null.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import signal
import sys
from pathlib import Path
from typing import Any

from lockstep.onhost import engines

# Importing an engine takes 20 s on two cores; ten times that for a cold disk. Less than what
# `model_recipe_check` waits, so that no container outlives it.
LIMIT_S = 240


def recipe_faults(engine: str, recipes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the engine's version, its faults, and the reason why it was not asked."""
    version, engine_module = importlib.metadata.version(engine), engines.ENGINES[engine]
    faults: list[str] = []
    silent_recipes: dict[str, None] = {}
    for recipe in recipes:
        try:
            fault = engine_module.recipe_refusal(version, recipe)
            faults += [fault] if fault else []
        except engines.EngineUnavailable as reason:
            silent_recipes[str(reason)] = None
    return {"version": version, "faults": faults, "unanswered": "; ".join(silent_recipes) or None}


def main(argv: list[str]) -> int:
    """Run the command line; see the module's docstring."""
    signal.alarm(LIMIT_S)
    engine, question = argv
    # Engines print banners, which must not mix with the answer.
    with contextlib.redirect_stdout(sys.stderr):
        answer_document = recipe_faults(
            engine, json.loads(Path(question).read_text(encoding="utf-8"))
        )
    print(json.dumps(answer_document), flush=True)
    return 0
