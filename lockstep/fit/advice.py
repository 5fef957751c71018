"""Alternatives for a recipe that does not fit: more Sparks, a shorter context, another recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockstep.core.errors import RecipeError
from lockstep.fit.fit import fit
from lockstep.models.known_models import Knowledge
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import serving


def what_holds(recipe: Recipe, knowledge: Knowledge) -> tuple[int, str] | None:
    """How few Sparks (2, 4 or 8) hold the recipe at its context, and split how; None: not eight.

    The engine is given the highest share that is known to start, because a recipe written for one
    Spark says nothing about eight. Splitting each layer is tried first; an MLA cache is whole on
    every host then, so that splitting the layers among the hosts may hold more.
    """
    asked = serving(recipe)
    share = max(knowledge.hardware["dgx-spark"].gib("highest_utilization"), asked.utilization or 0)
    for hosts in (2, 4, 8):
        for tensor, pipeline, how in ((hosts, 1, "tensor"), (1, hosts, "pipeline")):
            spread = replace(
                asked,
                tensor_parallel=tensor,
                pipeline_parallel=pipeline,
                data_parallel=1,
                utilization=share,
            )
            if fit(recipe, knowledge, asked=spread).verdict in ("fits", "tight"):
                return hosts, how
    return None


def advice(recipe: Recipe, catalogue: Mapping[str, Recipe], knowledge: Knowledge) -> list[str]:
    """Sentences that say what would fit; [] where nothing is known to."""
    sentences = []
    answer = fit(recipe, knowledge)
    spread = what_holds(recipe, knowledge)
    if spread and spread[0] > answer.hosts:
        sentences.append(f"{spread[0]} Sparks hold it, {spread[1]} parallel.")
    if spread is None and answer.verdict == "does not fit":
        sentences.append("Eight Sparks do not hold it either.")
    if answer.largest_context and answer.context and answer.largest_context < answer.context:
        kept = answer.largest_context // 1024 * 1024
        if kept:
            sentences.append(f"{answer.hosts} Spark(s) hold it with a context of {kept} tokens.")
    family = knowledge.model(recipe.model).family
    others = sorted(
        other.name
        for other in catalogue.values()
        if family
        and other.model != recipe.model
        and knowledge.model(other.model).family == family
        and other.lockstep.known_bad is None
        and _fits(other, knowledge)
    )
    if others:
        sentences.append(f"Of the same family these fit: {', '.join(others)}.")
    return sentences


def _fits(recipe: Recipe, knowledge: Knowledge) -> bool:
    try:
        return fit(recipe, knowledge).verdict == "fits"
    except RecipeError:
        return False
