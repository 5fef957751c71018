"""Alternatives for a recipe that does not fit: more Sparks, a shorter context, another recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from lockstep.core.errors import RecipeError
from lockstep.fit.fit import SERVING_GIB, UNSAID, Floors, fit, model_of
from lockstep.models.known_models import USUAL, Knowledge
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, serving

# Shorter contexts that are tried where no share is enough.
_PARTS = (1, 2, 4, 8)


def what_holds(
    recipe: Recipe,
    knowledge: Knowledge,
    machine: str = USUAL,
    asked: Serving | None = None,
    floors: Floors = UNSAID,
) -> tuple[int, str] | None:
    """How few Sparks (2, 4 or 8) hold the recipe at its context, and split how; None: not eight.

    The engine is given the highest share that is known to start, because a recipe written for one
    Spark says nothing about eight. Splitting each layer is tried first; an MLA cache is whole on
    every host then, so that splitting the layers among the hosts may hold more.
    """
    asked = asked or serving(recipe)
    share = _highest_share(knowledge, machine, floors)
    for hosts in (2, 4, 8):
        for tensor, pipeline, how in ((hosts, 1, "tensor"), (1, hosts, "pipeline")):
            spread = replace(
                asked,
                tensor_parallel=tensor,
                pipeline_parallel=pipeline,
                data_parallel=1,
                utilization=share,
            )
            answer = fit(recipe, knowledge, machine=machine, asked=spread, floors=floors)
            if answer.verdict in ("fits", "tight"):
                return hosts, how
    return None


def advice(
    recipe: Recipe,
    catalogue: Mapping[str, Recipe],
    knowledge: Knowledge,
    machine: str = USUAL,
    asked: Serving | None = None,
    floors: Floors = UNSAID,
) -> list[str]:
    """Sentences that say what would fit; [] where nothing is known to.

    `asked` is the recipe's settings with what the inventory overrides; None: without. `floors` is
    the least memory that the inventory leaves to the host (`fit`).
    """
    sentences = []
    asked = asked or serving(recipe)
    answer = fit(recipe, knowledge, machine=machine, asked=asked, floors=floors)
    if answer.verdict == "does not fit" and (
        less := _on_the_same_hosts(recipe, asked, knowledge, machine, floors)
    ):
        sentences.append(less)
    spread = what_holds(recipe, knowledge, machine, asked, floors)
    if spread and spread[0] > answer.hosts:
        share = _highest_share(knowledge, machine, floors)
        with_share = (
            f", with gpu_memory_utilization {share:g}"
            if asked.utilization is not None and asked.utilization < share
            else ""
        )
        sentences.append(f"{spread[0]} Sparks hold it, {spread[1]} parallel{with_share}.")
    if spread is None and answer.verdict == "does not fit":
        sentences.append("Eight Sparks do not hold it either.")
    if answer.largest_context and answer.context and answer.largest_context < answer.context:
        kept = answer.largest_context // 1024 * 1024
        if kept:
            sentences.append(f"{answer.hosts} Spark(s) hold it with a context of {kept} tokens.")
    family = model_of(recipe, knowledge).family
    others = sorted(
        other.name
        for other in catalogue.values()
        if family
        and other.model != recipe.model
        and knowledge.model(other.model).family == family
        and other.lockstep.known_bad is None
        and _fits(other, knowledge, machine, floors)
    )
    if others:
        sentences.append(f"Of the same family these fit: {', '.join(others)}.")
    return sentences


def _on_the_same_hosts(
    recipe: Recipe, asked: Serving, knowledge: Knowledge, machine: str, floors: Floors
) -> str:
    """Share and context with which it fits where it is, the longest context first; "" for none."""
    share = _highest_share(knowledge, machine, floors)
    context = asked.context or _own_context(recipe, knowledge)
    if not engine_of(recipe).share:
        return ""
    for part in _PARTS:
        kept = (context or 0) // part // 1024 * 1024
        less = replace(asked, utilization=share, context=kept or asked.context)
        answer = fit(recipe, knowledge, machine=machine, asked=less, floors=floors)
        if answer.verdict in ("fits", "tight"):
            shorter = f" and a context of {kept} tokens" if part > 1 else ""
            return f"Here it may run with gpu_memory_utilization {share:g}{shorter}."
        if not kept:
            break
    return ""


def _highest_share(knowledge: Knowledge, machine: str, floors: Floors) -> float:
    """The highest that is known to start, less what the inventory has left free beyond the usual
    floor, which is in that figure."""
    hardware = knowledge.hardware[machine]
    beyond = max([0.0, *(each - SERVING_GIB for each in floors if each is not None)])
    share = hardware.gib("highest_utilization") - beyond / hardware.gib("memory_total_gib")
    return max(0.0, math.floor(share * 100 + 1e-9) / 100)


def _own_context(recipe: Recipe, knowledge: Knowledge) -> int | None:
    shapes = model_of(recipe, knowledge).architecture
    return shapes.context if shapes else None


def _fits(recipe: Recipe, knowledge: Knowledge, machine: str, floors: Floors) -> bool:
    try:
        return fit(recipe, knowledge, machine=machine, floors=floors).verdict == "fits"
    except RecipeError:
        return False
