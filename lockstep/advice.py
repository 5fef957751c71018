"""For a recipe that does not fit: how many Sparks, which context, or which other recipe would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockstep.fit import fit
from lockstep.models import Knowledge
from lockstep.recipes import Recipe
from lockstep.serving import serving


def fewest_hosts(recipe: Recipe, knowledge: Knowledge, machine: str = "dgx-spark") -> int | None:
    """How few Sparks (1, 2, 4 or 8, tensor parallel) hold the recipe; None: not even eight.

    On more than one, the engine is given the highest share that is known to start, because a
    recipe written for one Spark says nothing about eight.
    """
    asked = serving(recipe)
    highest = knowledge.hardware[machine].gib("highest_utilization")
    for hosts in (1, 2, 4, 8):
        share = asked.utilization if hosts == 1 else max(highest, asked.utilization or 0)
        spread = replace(asked, tensor_parallel=hosts, pipeline_parallel=1, utilization=share)
        if fit(recipe, knowledge, machine=machine, asked=spread).verdict in ("fits", "tight"):
            return hosts
    return None


def advice(recipe: Recipe, catalogue: Mapping[str, Recipe], knowledge: Knowledge) -> list[str]:
    """Sentences that say what would fit; [] where nothing is known to."""
    sentences = []
    answer = fit(recipe, knowledge)
    hosts = fewest_hosts(recipe, knowledge)
    if hosts and hosts > answer.hosts:
        sentences.append(f"It fits {hosts} Sparks, tensor parallel.")
    if answer.largest_context and answer.context and answer.largest_context < answer.context:
        kept = answer.largest_context // 1024 * 1024
        if kept:
            sentences.append(f"On {answer.hosts} Spark(s) it fits with a context of {kept} tokens.")
    family = knowledge.model(recipe.model).family
    others = sorted(
        other.name
        for other in catalogue.values()
        if family
        and other.model != recipe.model
        and knowledge.model(other.model).family == family
        and other.lockstep.known_bad is None
        and fit(other, knowledge).verdict == "fits"
    )
    if others:
        sentences.append(f"Of the same family these fit: {', '.join(others)}.")
    return sentences
