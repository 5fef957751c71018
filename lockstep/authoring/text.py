"""The text of a recipe file: what it says, and in comments where each part of it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import yaml

from lockstep.authoring.fitting_settings import FittingSettings
from lockstep.authoring.related_recipes import RelatedRecipes
from lockstep.authoring.weights import Weights
from lockstep.models.known_models import Knowledge
from lockstep.models.licences import canonical
from lockstep.onhost.core.need import rounded_up
from lockstep.recipes import freeze_guard
from lockstep.recipes.command import serve_command

# At a time: a hybrid model's states and the profile of the first run grow with them.
_SEQUENCES = 8
# Tokens of an engine without a share where nobody knows what they take.
_UNKNOWN_CONTEXT = 8192
# How llama.cpp is told a repository of the hub; Lockstep puts the fetched file in its place.
_HUB = "-hf"
# Flags without a value that are taken over, and those of them that a parser needs.
_OF_TOOLS = ("--enable-auto-tool-choice",)
_SWITCHES = (*_OF_TOOLS, "--enable-metrics")


@dataclass(frozen=True)
class Draft:
    """The material of a recipe.

    Attributes:
        weights: What is served, and by which engine.
        related: The recipes of the catalogue that are near to it.
        port: Port of its API.
        today: The day of the reading, ISO.
        knowledge: What the catalogue knows; of a checkpoint that it knows nothing is repeated.
        fitting: Context, share and Sparks; None: not computed yet.
    """

    weights: Weights
    related: RelatedRecipes
    port: int
    today: str
    knowledge: Knowledge
    fitting: FittingSettings | None = None


def recipe_text(draft: Draft) -> str:
    """The whole file."""
    parts = (_head, _metadata, _defaults, _env, _command, _executor, _block)
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part(draft)))) + "\n"


def nearest_words(related: RelatedRecipes) -> str:
    """The recipe that it takes after, for people; "" where there is none."""
    if related.nearest is None:
        return ""
    otherwise = "" if related.same_storage else ", whose weights are stored otherwise"
    return related.nearest.name + otherwise


def parsers_missing(draft: Draft) -> bool:
    """Whether nobody knows its parsers; llama.cpp takes them from the chat template."""
    return draft.related.nearest is None and draft.weights.scheme != "gguf"


def guard_words(draft: Draft) -> str:
    """The freeze guard that each start gets, for people; "" where it needs none."""
    guard, experts = draft.weights.engine.guard, draft.weights.checkpoint.experts
    if guard is None or experts in (None, "none"):
        return ""
    return f"{guard.flag} {guard.quantised if experts == 'quantised' else guard.unquantised}"


def _head(draft: Draft) -> Iterator[str]:
    weights, related, fitting = draft.weights, draft.related, draft.fitting
    hosts = fitting.hosts if fitting else 1
    yield f"# Written by `lockstep recipe new` on {draft.today}, from {weights.at}."
    if parsers_missing(draft):
        types = ", ".join(weights.checkpoint.types) or "none stated"
        yield f"# The catalogue has no recipe of its family (model_type: {types}) on this engine."
        yield "# So no parser of tool calls or reasoning is named: add those of its model card."
    yield 'recipe_version: "2"'
    yield f"model: {_scalar(weights.model)}"
    yield f"model_revision: {_scalar(weights.checkpoint.revision)}"
    yield f"runtime: {weights.engine.runtimes[0]}"
    if related.starter.container:
        yield f"# The image of recipe {related.starter.name}."
        yield f"container: {related.starter.container}"
    else:
        as_that = f"as recipe {related.starter.name}"
        yield f"# Without `container`, {as_that}: the engine of the host's venv."
    yield f"min_nodes: {hosts}"
    yield f"max_nodes: {hosts}"


def _metadata(draft: Draft) -> Iterator[str]:
    weights = draft.weights
    name = weights.model.rpartition("/")[2]
    yield "metadata:"
    yield f"  description: {_scalar(f'{name} on {weights.engine.title}')}"
    stored = weights.scheme or weights.checkpoint.quantisation
    if stored == "none":
        yield f"  model_dtype: {weights.checkpoint.dtype or 'bfloat16'}"
    elif stored:
        yield f"  quantization: {_scalar(stored)}"


def _defaults(draft: Draft) -> Iterator[str]:
    yield "defaults:"
    said = ""
    for key, value, comment in _settings(draft):
        if comment and comment != said:
            yield f"  # {comment}"
        said = comment
        yield f"  {key}: {_scalar(value)}"


def _settings(draft: Draft) -> Iterator[tuple[str, Any, str]]:
    """Key, value and comment of each of `defaults`."""
    engine, related, fitting = draft.weights.engine, draft.related, draft.fitting
    yield "host", "127.0.0.1", ""
    yield "port", draft.port, ""
    if fitting and fitting.tensor > 1:
        yield "tensor_parallel", fitting.tensor, ""
    if fitting and fitting.pipeline > 1:
        yield "pipeline_parallel", fitting.pipeline, ""
    if engine.share:
        share = fitting.share if fitting else None
        yield "gpu_memory_utilization", share or 0.5, _share_words(fitting) if fitting else ""
    if fitting and fitting.context:
        yield "max_model_len", fitting.context, _context_words(fitting)
    elif not engine.share:
        # It takes the memory of its whole context at its start.
        yield "max_model_len", _UNKNOWN_CONTEXT, "Ours: how much memory a token takes is not known."
    if engine.share:
        yield "max_num_seqs", _SEQUENCES, "Ours: people on one Spark are few."
    nearest = related.nearest
    origin = f"Of recipe {nearest_words(related)}." if nearest else ""
    if nearest and related.same_storage and "moe_backend" in nearest.defaults:
        yield "moe_backend", nearest.defaults["moe_backend"], f"The freeze guard. {origin}"
    for key, value in related.family_values.items():
        yield key, value, origin


def _share_words(fitting: FittingSettings) -> str:
    fit = fitting.fit
    least = f"needs {rounded_up(fit.needs_gib)} GiB available at its start"
    if fit.budget_gib is None:
        return f"Computed: {least}."
    return f"Computed: at most {fit.budget_gib:.1f} GiB, and {least}."


def _context_words(fitting: FittingSettings) -> str:
    fit = fitting.fit
    if fit.sequence_gib is None:
        return ""
    room_for = f"with room for {fit.sequences} such"
    return f"Computed: {fit.sequence_gib:.1f} GiB a sequence of that length, {room_for}."


def _env(draft: Draft) -> Iterator[str]:
    nearest = draft.related.nearest
    if nearest and draft.related.same_storage and (given := freeze_guard.variables(nearest)):
        yield f"# Of recipe {nearest.name}."
        yield "env:"
        yield from (f"  {key}: {json.dumps(value)}" for key, value in given.items())


def _command(draft: Draft) -> Iterator[str]:
    engine, related = draft.weights.engine, draft.related
    words = [" ".join(engine.entries[0])]
    if engine.positional_model:
        words[0] += " {model}"
    else:
        spelled = _HUB if _HUB in engine.hub_model else engine.spellings("model")[0]
        words.append(f"{spelled} {{model}}")
    for key, value, _ in _settings(draft):
        if value is not False:
            words.append(f"{engine.spellings(key)[0]} {{{key}}}")
    said = serve_command(related.nearest or related.starter)
    words += [
        flag
        for flag in _SWITCHES
        if flag in said and (related.family_values or flag not in _OF_TOOLS)
    ]
    yield "command: |"
    yield from (f"  {'  ' * bool(index)}{word} \\" for index, word in enumerate(words[:-1]))
    yield f"    {words[-1]}"


def _executor(draft: Draft) -> Iterator[str]:
    starter = draft.related.starter
    if starter.container and starter.executor_config:
        yield f"# Of recipe {starter.name}."
        yield "executor_config:"
        yield from _indented(starter.executor_config)


def _block(draft: Draft) -> Iterator[str]:
    weights, checkpoint, related = draft.weights, draft.weights.checkpoint, draft.related
    nearest = related.nearest
    yield "lockstep:"
    yield f"  engine: {weights.engine.name}"
    if checkpoint.experts is not None:
        if guard := guard_words(draft):
            yield f"  # By its configuration. So each start gets the freeze guard, {guard}."
        yield f"  moe: {_scalar(checkpoint.experts != 'none')}"
    known = draft.knowledge.model(weights.model).vision
    if known is not None or checkpoint.sees is not None:
        by = "its mmproj file" if checkpoint.vision_tensors is None else "the names of its tensors"
        yield f"  # By {by if known is None else 'catalogue/models.yaml'}."
        yield f"  vision: {_scalar(checkpoint.sees if known is None else known)}"
    shapes = checkpoint.refused_shapes
    if shapes is not None:
        yield "  # By rendering its chat template. The gateway evens them out."
    elif nearest and (shapes := nearest.lockstep.refused_shapes) is not None:
        yield f"  # Of recipe {nearest.name}."
    if shapes is not None:
        yield f"  refused_shapes: [{', '.join(shapes)}]"
    if checkpoint.licence and checkpoint.licence != "other":
        yield f"  licence: {_scalar(canonical(checkpoint.licence) or checkpoint.licence)}"
        yield f"  licence_source: {_scalar(f'tag of {weights.at}, read {draft.today}')}"
    if nearest and nearest.lockstep.ulimits:
        yield f"  ulimits: {json.dumps(dict(nearest.lockstep.ulimits))}"
    yield from _checkpoint(draft)


def _checkpoint(draft: Draft) -> Iterator[str]:
    """Sizes and shapes, as an entry of ``catalogue/models.yaml`` has them."""
    weights, shapes = draft.weights, draft.weights.checkpoint.architecture
    known = draft.knowledge.model(weights.model)
    if known.weights_gb and known.architecture:
        return
    yield "  # As an entry of catalogue/models.yaml, which does not know these weights."
    yield "  checkpoint:"
    if stored := weights.scheme or weights.checkpoint.quantisation:
        stored = (weights.checkpoint.dtype or "bfloat16") if stored == "none" else stored
        yield f"    quantisation: {_scalar(stored)}"
    if weights.checkpoint.sees is not None:
        yield f"    vision: {_scalar(weights.checkpoint.sees)}"
    size = f"{weights.size / 1e9:.6f}".rstrip("0").rstrip(".")
    source = json.dumps(f"files of {weights.at}")
    more = f"source: {source}, date: {draft.today}, kind: quoted"
    yield f"    weights_gb: {{value: {size}, {more}}}"
    if shapes is not None:
        yield "    architecture:"
        yield f"      source: {_scalar(f'configuration of {weights.at}')}"
        yield f"      date: {draft.today}"
        yield from (
            f"      {key}: {_scalar(value)}" for key, value in _stated_fields(shapes).items()
        )
        yield "      layers:"
        for group in shapes.layers:
            inner = ", ".join(f"{key}: {value}" for key, value in _stated_fields(group).items())
            yield f"        - {{{inner}}}"


def _stated_fields(value: Any) -> Mapping[str, Any]:
    """Fields of a dataclass that differ from its defaults, its layers left out."""
    given = {item.name: (getattr(value, item.name), item.default) for item in fields(value)}
    return {
        name: said
        for name, (said, usual) in given.items()
        if name != "layers" and said is not None and (usual is MISSING or said != usual)
    }


def _indented(value: Mapping[str, Any]) -> list[str]:
    text = yaml.safe_dump(dict(value), sort_keys=False)
    return [f"  {line}" for line in text.splitlines()]


def _scalar(value: Any) -> str:
    """A value as YAML has it in a line of its own."""
    text: str = yaml.safe_dump(value, width=10_000, allow_unicode=True)
    return text.splitlines()[0]
