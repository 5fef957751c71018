"""Alternatives for a recipe that does not fit: more Sparks, a shorter context, another recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from lockstep.checkpoints.known_checkpoints import USUAL, Knowledge
from lockstep.core.errors import RecipeError
from lockstep.fit.fit import SERVING_GIB, UNSAID, Minimums, checkpoint_of, fit
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, serving

#: Contexts are divided by these where no share is enough.
PARTS = (1, 2, 4, 8)


def what_holds(
    recipe: Recipe,
    knowledge: Knowledge,
    machine: str = USUAL,
    settings: Serving | None = None,
    minimums: Minimums = UNSAID,
) -> tuple[int, str] | None:
    """Return the fewest Sparks (2, 4 or 8) that hold the recipe at its context, and its split.

    Return None where eight do not hold it. The engine is given the highest share that is known to
    start, because a recipe written for one Spark says nothing about eight. Splitting each layer is
    tried first. An MLA cache is then whole on every host, so splitting the layers among the hosts
    may hold more.
    """
    settings = settings or serving(recipe)
    share = _highest_share(recipe, knowledge, machine, settings, minimums)
    for hosts in (2, 4, 8):
        for tensor, pipeline, how in ((hosts, 1, "tensor"), (1, hosts, "pipeline")):
            spread = replace(
                settings,
                tensor_parallel=tensor,
                pipeline_parallel=pipeline,
                data_parallel=1,
                utilization=share,
            )
            answer = fit(recipe, knowledge, machine=machine, asked=spread, minimums=minimums)
            if answer.verdict in ("fits", "tight"):
                return hosts, how
    return None


def advice(
    recipe: Recipe,
    catalogue: Mapping[str, Recipe],
    knowledge: Knowledge,
    machine: str = USUAL,
    settings: Serving | None = None,
    minimums: Minimums = UNSAID,
) -> list[str]:
    """Return sentences that say what would fit; [] where nothing is known to fit.

    `settings` are the recipe's settings with what the inventory overrides; None: the recipe's own.
    `minimums` is the least memory that the inventory leaves to the host (`fit`).
    """
    sentences = []
    settings = settings or serving(recipe)
    answer = fit(recipe, knowledge, machine=machine, asked=settings, minimums=minimums)
    if answer.verdict == "does not fit" and (
        less := _on_the_same_hosts(recipe, settings, knowledge, machine, minimums)
    ):
        sentences.append(less)
    spread = what_holds(recipe, knowledge, machine, settings, minimums)
    if spread and spread[0] > answer.hosts:
        share = _highest_share(recipe, knowledge, machine, settings, minimums)
        with_share = (
            f", with gpu_memory_utilization {share:g}"
            if settings.utilization not in (None, share)
            else ""
        )
        sentences.append(f"{spread[0]} Sparks hold it, {spread[1]} parallel{with_share}.")
    if spread is None and answer.verdict == "does not fit":
        sentences.append("Eight Sparks do not hold it either.")
    if answer.largest_context and answer.context and answer.largest_context < answer.context:
        kept_tokens = answer.largest_context // 1024 * 1024
        highest = knowledge.hardware[machine].gib("highest_utilization")
        # The share stays, which `utilization-high` names if it is higher.
        if kept_tokens and (settings.utilization or 0) <= highest:
            sentences.append(
                f"{answer.hosts} Spark(s) hold it with a context of {kept_tokens} tokens."
            )
    family = checkpoint_of(recipe, knowledge).family
    other_recipes = sorted(
        other_recipe.name
        for other_recipe in catalogue.values()
        if family
        and other_recipe.model != recipe.model
        and knowledge.checkpoint(other_recipe.model).family == family
        and other_recipe.lockstep.known_bad is None
        and _fits(other_recipe, knowledge, machine, minimums)
    )
    if other_recipes:
        sentences.append(f"Of the same family these fit: {', '.join(other_recipes)}.")
    return sentences


def _on_the_same_hosts(
    recipe: Recipe, serving: Serving, knowledge: Knowledge, machine: str, minimums: Minimums
) -> str:
    """Return the share and longest context with which the recipe fits these hosts; "" for none."""
    share = _highest_share(recipe, knowledge, machine, serving, minimums)
    context = serving.context or _own_context(recipe, knowledge)
    if not engine_of(recipe).share:
        return ""
    for part in PARTS:
        kept_tokens = (context or 0) // part // 1024 * 1024
        less = replace(serving, utilization=share, context=kept_tokens or serving.context)
        answer = fit(recipe, knowledge, machine=machine, asked=less, minimums=minimums)
        if answer.verdict in ("fits", "tight"):
            shorter = f" and a context of {kept_tokens} tokens" if part > 1 else ""
            return f"Here it may run with gpu_memory_utilization {share:g}{shorter}."
        if not kept_tokens:
            break
    return ""


def _highest_share(
    recipe: Recipe, knowledge: Knowledge, machine: str, settings: Serving, minimums: Minimums
) -> float:
    """Return the highest share that is known to start, less what the inventory leaves free.

    Only what is left free beyond the usual minimum counts: that minimum is in the known share. What
    vLLM takes beside its share, for pictures for example, must be available, too.
    """
    hardware = knowledge.hardware[machine]
    total = hardware.gib("memory_total_gib")
    beyond = max([0.0, *(minimum - SERVING_GIB for minimum in minimums if minimum is not None)])
    share = _rounded_down(hardware.gib("highest_utilization") - beyond / total)
    if not engine_of(recipe).counts_overhead:
        return share
    asked = replace(settings, utilization=share, context=1)
    needed_gib = fit(recipe, knowledge, machine=machine, asked=asked, minimums=minimums).needs_gib
    short_gib = needed_gib - hardware.at_rest_gib(total)
    return _rounded_down(share - max(0.0, short_gib) / total)


def _rounded_down(share: float) -> float:
    return max(0.0, math.floor(share * 100 + 1e-9) / 100)


def _own_context(recipe: Recipe, knowledge: Knowledge) -> int | None:
    shapes = checkpoint_of(recipe, knowledge).architecture
    return shapes.context if shapes else None


def _fits(recipe: Recipe, knowledge: Knowledge, machine: str, minimums: Minimums) -> bool:
    try:
        return fit(recipe, knowledge, machine=machine, minimums=minimums).verdict == "fits"
    except RecipeError:
        return False
