"""Inside an engine's image: whether its engine takes the recipes that are to run on it.

usage: image-answer ENGINE QUESTION.json

QUESTION.json is a list of recipes as `Engine.fault` takes them. The last line of standard
output is JSON: {"version", "faults", "unanswered"}, where "unanswered" says why the engine could
not be asked, or is null.
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
# `image_check` waits, so that no container outlives it.
LIMIT_S = 240


def answer(engine: str, recipes: list[dict[str, Any]]) -> dict[str, Any]:
    """Version, faults, why it was not asked."""
    version, known = importlib.metadata.version(engine), engines.ENGINES[engine]
    faults: list[str] = []
    unanswered: dict[str, None] = {}
    for recipe in recipes:
        try:
            fault = known.fault(version, recipe)
            faults += [fault] if fault else []
        except engines.Unanswered as reason:
            unanswered[str(reason)] = None
    return {"version": version, "faults": faults, "unanswered": "; ".join(unanswered) or None}


def main(argv: list[str]) -> int:
    """Command line; see the module's docstring."""
    signal.alarm(LIMIT_S)
    engine, question = argv
    # Engines print banners.
    with contextlib.redirect_stdout(sys.stderr):
        said = answer(engine, json.loads(Path(question).read_text(encoding="utf-8")))
    print(json.dumps(said), flush=True)
    return 0
