"""Output of `lockstep recipe new`: the recipe that it wrote, or why it wrote none."""

from __future__ import annotations

import click

from lockstep.authoring.fitting_settings import FittingSettings
from lockstep.authoring.text import RecipeText, guard_words, nearest_words, parsers_missing
from lockstep.authoring.weights import Weights
from lockstep.checkpoints.known_checkpoints import GIB
from lockstep.core.errors import paragraph
from lockstep.core.terminal import print_indented
from lockstep.fit.fit import Fit
from lockstep.onhost.core.memory_requirement import rounded_up
from lockstep.onhost.engines import ENGINES


def print_too_large(weights: Weights, why: Fit) -> None:
    """Print the reasons why some weights fit no number of Sparks."""
    size = f"{weights.size / 1e9:.1f} GB ({weights.size / GIB:.1f} GiB) of weights"
    click.echo(paragraph(f"{weights.at}: {size} do not fit. Nothing was written."))
    for reason in why.reasons:
        print_indented(f"One Spark: {reason}.")
    more = f"{weights.engine.title} serves a model on one host alone."
    print_indented("Eight Sparks do not hold it either." if weights.engine.spans_hosts else more)
    print_indented("→ Choose a repository with fewer bits per weight.")


def print_draft(draft: RecipeText, settings: FittingSettings) -> None:
    """Print the computed figures, the origin of each part, and the unknown properties."""
    weights, fit = draft.weights, settings.fit
    stored_texts = {"none": "not quantised", "": "stored in no way that is known here"}
    size = f"{weights.size / 1e9:.1f} GB, {stored_texts.get(weights.scheme, weights.scheme)}"
    rows = [("weights", size), ("Sparks", f"{settings.hosts}{_split(settings)}")]
    if fit.host_use_gib:
        rows.append(("memory", f"{fit.host_use_gib:.1f} GiB in use on a Spark while it serves"))
    rows.append(("", f"{rounded_up(fit.needs_gib)} GiB must be available when it starts"))
    if settings.context:
        rows.append(("context", f"{settings.context} tokens, with room for {fit.sequences} such"))
    rows.append(("port", str(draft.port)))
    if draft.related_recipes.nearest and weights.scheme != "gguf":
        family_texts = [
            f"{key} {value}" for key, value in draft.related_recipes.family_values.items()
        ]
        rows.append(("family", f"as recipe {nearest_words(draft.related_recipes)}"))
        rows += [("", text) for text in family_texts]
    if guard := guard_words(draft):
        rows.append(("guard", guard))
    for key, value in rows:
        click.echo(f"  {key:<9}{value}")
    for sentence in _unknown(draft, settings):
        print_indented(f"unknown: {sentence}")


def _split(settings: FittingSettings) -> str:
    if settings.hosts == 1:
        return ""
    return ", tensor parallel" if settings.tensor > 1 else ", pipeline parallel"


def _unknown(draft: RecipeText, settings: FittingSettings) -> list[str]:
    """Return sentences about unknown properties, each with its remedy."""
    other_engines, checkpoint = draft.related_recipes.other_engines, draft.weights.checkpoint
    lines = []
    if parsers_missing(draft):
        types = ", ".join(checkpoint.types) or "not stated"
        other_engine = ENGINES[other_engines[0]] if other_engines else None
        remedy = (
            f"The catalogue knows it on {other_engine.title}: --engine {other_engine.name}."
            if other_engine
            else "Add tool_call_parser and reasoning_parser as its model card has them."
        )
        lines.append(f"its family (model_type: {types}) on this engine. {remedy}")
    if settings.context is None:
        lines.append(
            f"the memory of a context ({checkpoint.architecture_unknown}). Set max_model_len, and "
            "watch its first start."
        )
    if not checkpoint.template and draft.weights.scheme != "gguf":
        lines.append(
            "how it is talked to: it has no chat template, as base models have none. Name one with "
            "chat_template, or choose the repository of its instruct model."
        )
    return lines
