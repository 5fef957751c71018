"""Output of `lockstep recipe new`: the recipe that it wrote, or why it wrote none."""

from __future__ import annotations

import click

from lockstep.authoring.fitting_settings import FittingSettings
from lockstep.authoring.text import Draft, guard_words, nearest_words, parsers_missing
from lockstep.authoring.weights import Weights
from lockstep.core.errors import paragraph
from lockstep.core.terminal import indented
from lockstep.fit.fit import Fit
from lockstep.models.known_models import GIB
from lockstep.onhost.core.need import rounded_up
from lockstep.onhost.engines import ENGINES


def print_too_large(weights: Weights, why: Fit) -> None:
    """Print the reasons why some weights fit no number of Sparks."""
    size = f"{weights.size / 1e9:.1f} GB ({weights.size / GIB:.1f} GiB) of weights"
    click.echo(paragraph(f"{weights.at}: {size} do not fit. Nothing was written."))
    for reason in why.reasons:
        indented(f"One Spark: {reason}.")
    more = f"{weights.engine.title} serves a model on one host alone."
    indented("Eight Sparks do not hold it either." if weights.engine.spans_hosts else more)
    indented("→ Choose a repository with fewer bits per weight.")


def print_draft(draft: Draft, found: FittingSettings) -> None:
    """Print the computed figures, from where each part comes, and what is not known."""
    weights, fit = draft.weights, found.fit
    stored = {"none": "not quantised", "": "stored in no way that is known here"}
    size = f"{weights.size / 1e9:.1f} GB, {stored.get(weights.scheme, weights.scheme)}"
    rows = [("weights", size), ("Sparks", f"{found.hosts}{_split(found)}")]
    if fit.host_use_gib:
        rows.append(("memory", f"{fit.host_use_gib:.1f} GiB in use on a Spark while it serves"))
    rows.append(("", f"{rounded_up(fit.needs_gib)} GiB must be available when it starts"))
    if found.context:
        rows.append(("context", f"{found.context} tokens, with room for {fit.sequences} such"))
    rows.append(("port", str(draft.port)))
    if draft.related.nearest and weights.scheme != "gguf":
        said = [f"{key} {value}" for key, value in draft.related.family_values.items()]
        rows.append(("family", f"as recipe {nearest_words(draft.related)}"))
        rows += [("", each) for each in said]
    if guard := guard_words(draft):
        rows.append(("guard", guard))
    for key, value in rows:
        click.echo(f"  {key:<9}{value}")
    for sentence in _unknown(draft, found):
        indented(f"unknown: {sentence}")


def _split(found: FittingSettings) -> str:
    if found.hosts == 1:
        return ""
    return ", tensor parallel" if found.tensor > 1 else ", pipeline parallel"


def _unknown(draft: Draft, found: FittingSettings) -> list[str]:
    """Sentences about unknown properties, each with its remedy."""
    others, checkpoint = draft.related.other_engines, draft.weights.checkpoint
    said = []
    if parsers_missing(draft):
        types = ", ".join(checkpoint.types) or "not stated"
        other = ENGINES[others[0]] if others else None
        remedy = (
            f"The catalogue knows it on {other.title}: --engine {other.name}."
            if other
            else "Add tool_call_parser and reasoning_parser as its model card has them."
        )
        said.append(f"its family (model_type: {types}) on this engine. {remedy}")
    if found.context is None:
        said.append(
            f"the memory of a context ({checkpoint.architecture_unknown}). Set max_model_len, and "
            "watch its first start."
        )
    if not checkpoint.template and draft.weights.scheme != "gguf":
        said.append(
            "how it is talked to: it has no chat template, as base models have none. Name one with "
            "chat_template, or choose the repository of its instruct model."
        )
    return said
