"""What the lock read of checkpoints, in the recipes that do not state it themselves."""

from __future__ import annotations

from dataclasses import replace

from lockstep.inventory.host import HostPlan
from lockstep.lock.pins import Pins
from lockstep.recipes.recipe_file import Recipe, with_experts


def informed(plan: HostPlan, pins: Pins) -> HostPlan:
    """The plan with recipes that say whether their model is a mixture of experts, where the lock
    knows it: the freeze guard follows from that."""
    targets = tuple(
        replace(
            target,
            recipe=_informed(target.recipe, pins),
            fallback=_informed(target.fallback, pins) if target.fallback else None,
        )
        for target in plan.targets
    )
    return plan if targets == plan.targets else replace(plan, targets=targets)


def _informed(recipe: Recipe, pins: Pins) -> Recipe:
    pin = pins.models.get(recipe.repository)
    if recipe.lockstep.moe is not None or pin is None or pin.experts is None:
        return recipe
    stored = "quantised" if pin.experts == "quantised" else "none"
    return with_experts(recipe, pin.experts != "none", stored)
