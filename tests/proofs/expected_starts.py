"""Print the expected start of each model: python expected_starts.py INVENTORY LOCK ANSWERS.

A process of its own, because reading the lab's inventory moves the reader into the lab's network.
ANSWERS is JSON: host → {"venv" or the digest of an image: the host's record}.
"""

import json
import sys
from pathlib import Path
from typing import Any

from lockstep.inventory import inventory_file
from lockstep.inventory.bound_models import BoundModel
from lockstep.inventory.host import HostPlan
from lockstep.lock import lockfile, pins
from lockstep.lock.engine_id import engine_id
from lockstep.recipes.command import serve_command
from lockstep.recipes.recipe_file import Recipe
from lockstep.units.model_variants import variants
from lockstep.units.served_weights import model_path


def of_host(
    plan: HostPlan, record: pins.Pins, answers: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Model → its command line and environment, by recipe and pins, and its engine's version."""
    engine_reports = {
        model.name: answers[record.images[model.image].digest if model.image else "venv"]
        for model in plan.models
    }
    model_variants = variants(
        plan.settings, plan.models, record, engine_id=engine_id(plan.settings, record)
    )
    answer: dict[str, dict[str, Any]] = {}
    for variant in model_variants:
        model, recipe = variant.model, variant.recipe
        answer[variant.name] = {
            "unit": variant.unit,
            "port": model.port,
            "argv": variant.argv,
            "environment": dict(variant.environment),
            "recipe": recipe.name,
            "version": engine_reports[model.name]["version"],
            "serve": _serve_words(plan, model, recipe, record),
            "commit": record.checkpoints[recipe.model].commit,
            "draft_commit": (
                record.checkpoints[recipe.lockstep.draft.model].commit
                if recipe.lockstep.draft
                else None
            ),
        }
    return answer


def _serve_words(
    plan: HostPlan, model: BoundModel, recipe: Recipe, record: pins.Pins
) -> tuple[str, ...]:
    """The recipe's own words at the pinned commits, without those around the engine."""
    commit = record.checkpoints[recipe.model].commit
    draft = recipe.lockstep.draft
    words: dict[str, object] = dict(model.overrides(recipe))
    if recipe.lockstep.borrow or (recipe.engine and recipe.engine.weights == "folder"):
        words["model"] = model_path(plan.settings, recipe, commit)
    else:
        words["revision"] = commit
    if draft:
        words["draft_revision"] = record.checkpoints[draft.model].commit
    return serve_command(recipe, overrides=words)


def main(argv: list[str]) -> None:
    """Command line; see the module's docstring."""
    path, lock_path, answers = argv
    plans = inventory_file.load(Path(path))
    record = lockfile.load(Path(lock_path))
    answers_by_host = json.loads(answers)
    print(
        json.dumps({plan.name: of_host(plan, record, answers_by_host[plan.name]) for plan in plans})
    )


if __name__ == "__main__":
    main(sys.argv[1:])
