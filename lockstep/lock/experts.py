"""The lock's facts about checkpoints, put into recipes that do not state them."""

from __future__ import annotations

from dataclasses import replace

from lockstep.inventory.host import HostPlan
from lockstep.lock.pins import Pins
from lockstep.recipes.recipe_file import Recipe, with_experts


def with_known_experts(plan: HostPlan, pins: Pins) -> HostPlan:
    """Return the plan with recipes that say whether their model is a mixture of experts.

    The lock gives the answer where it has one; the freeze guard follows from it.
    """
    models = tuple(
        replace(
            model,
            recipe=_recipe_with_experts(model.recipe, pins),
            fallback=_recipe_with_experts(model.fallback, pins) if model.fallback else None,
        )
        for model in plan.models
    )
    return plan if models == plan.models else replace(plan, models=models)


def _recipe_with_experts(recipe: Recipe, pins: Pins) -> Recipe:
    pin = pins.checkpoints.get(recipe.repository)
    if recipe.lockstep.moe is not None or pin is None or pin.experts is None:
        return recipe
    storage = "quantised" if pin.experts == "quantised" else "none"
    return with_experts(recipe, pin.experts != "none", storage)
