"""Print what each target must be started with: python expected.py INVENTORY LOCK ANSWERS.

A process of its own, because reading the lab's inventory moves the reader into the lab's network.
ANSWERS is JSON: host → {"venv" or the digest of an image: what the host's record says}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lockstep.inventory import inventory_file
from lockstep.inventory.bound_targets import BoundTarget
from lockstep.inventory.host import HostPlan
from lockstep.lock import lockfile, pins
from lockstep.lock.engine_id import engine_id
from lockstep.recipes.command import serve_command
from lockstep.recipes.recipe_file import Recipe
from lockstep.units.served_weights import model_path
from lockstep.units.variants import variants


def of_host(
    plan: HostPlan, record: pins.Pins, answers: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Target → its command line and environment, by recipe and pins, and its engine's version."""
    reported = {
        target.name: answers[record.images[target.image].digest if target.image else "venv"]
        for target in plan.targets
    }
    found = variants(
        plan.settings,
        plan.targets,
        record,
        engine_id=engine_id(plan.settings, record),
    )
    answer: dict[str, dict[str, Any]] = {}
    for variant in found:
        target, recipe = variant.target, variant.recipe
        answer[variant.name] = {
            "unit": variant.unit,
            "port": target.port,
            "argv": variant.argv,
            "environment": dict(variant.environment),
            "recipe": recipe.name,
            "version": reported[target.name]["version"],
            "serve": _served(plan, target, recipe, record),
            "commit": record.models[recipe.model].commit,
            "draft_commit": (
                record.models[recipe.lockstep.draft.model].commit if recipe.lockstep.draft else None
            ),
        }
    return answer


def _served(
    plan: HostPlan,
    target: BoundTarget,
    recipe: Recipe,
    record: pins.Pins,
) -> tuple[str, ...]:
    """The recipe's own words at the pinned commits, without what stands around the engine."""
    commit = record.models[recipe.model].commit
    draft = recipe.lockstep.draft
    words: dict[str, object] = dict(target.overrides(recipe))
    if recipe.lockstep.borrow or (recipe.engine and recipe.engine.weights == "folder"):
        words["model"] = model_path(plan.settings, recipe, commit)
    else:
        words["revision"] = commit
    if draft:
        words["draft_revision"] = record.models[draft.model].commit
    return serve_command(recipe, overrides=words)


def main(argv: list[str]) -> None:
    """Command line; see the module's docstring."""
    path, lock_path, answers = argv
    plans = inventory_file.load(Path(path))
    record = lockfile.load(Path(lock_path))
    asked = json.loads(answers)
    print(json.dumps({plan.name: of_host(plan, record, asked[plan.name]) for plan in plans}))


if __name__ == "__main__":
    main(sys.argv[1:])
