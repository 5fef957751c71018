"""The text of a recipe file, with comments that say where each part comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import yaml

from lockstep.authoring.fitting_settings import FittingSettings
from lockstep.authoring.related_recipes import RelatedRecipes
from lockstep.authoring.weights import Weights
from lockstep.checkpoints.known_checkpoints import Knowledge
from lockstep.checkpoints.licences import canonical
from lockstep.onhost.core.memory_requirement import rounded_up
from lockstep.recipes import freeze_guard
from lockstep.recipes.command import serve_command

# Sequences at a time. A hybrid model's states and the memory profile of its first run grow with
# this.
_SEQUENCES = 8
# Context in tokens for an engine without a share, if the memory of a token is unknown.
_UNKNOWN_CONTEXT = 8192
# The llama.cpp flag for a repository of the hub. Lockstep puts the fetched file in its place.
_HUB = "-hf"
# Flags without a value that a new recipe takes over. A tool parser needs those of the first tuple.
_OF_TOOLS = ("--enable-auto-tool-choice",)
_SWITCHES = (*_OF_TOOLS, "--enable-metrics")


@dataclass(frozen=True)
class RecipeText:
    """The material of a recipe.

    Attributes:
        weights: The weights and the engine that serves them.
        related: The recipes of the catalogue near to the weights.
        port: Port of its API.
        today: The day on which the repository was read, ISO.
        knowledge: The catalogue's knowledge. The recipe repeats nothing about a checkpoint known
            there.
        fitting: The context, share and number of Sparks; None: not computed yet.
    """

    weights: Weights
    related_recipes: RelatedRecipes
    port: int
    today: str
    knowledge: Knowledge
    fitting: FittingSettings | None = None


def recipe_text(draft: RecipeText) -> str:
    """Return the whole text of the recipe file."""
    parts = (_head, _metadata, _defaults, _env, _command, _executor, _block)
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part(draft)))) + "\n"


def nearest_words(related_recipes: RelatedRecipes) -> str:
    """Return the name of the nearest recipe with a remark on storage for people, or ""."""
    if related_recipes.nearest is None:
        return ""
    otherwise = "" if related_recipes.same_storage else ", whose weights are stored otherwise"
    return related_recipes.nearest.name + otherwise


def parsers_missing(draft: RecipeText) -> bool:
    """Tell whether the parsers are unknown; llama.cpp takes them from the chat template."""
    return draft.related_recipes.nearest is None and draft.weights.scheme != "gguf"


def guard_words(draft: RecipeText) -> str:
    """Return the freeze guard that each start gets, as people read it, or "" if none is needed."""
    guard, experts = draft.weights.engine.guard, draft.weights.checkpoint.experts
    if guard is None or experts in (None, "none"):
        return ""
    return (
        f"{guard.flag} "
        f"{guard.quantised_value if experts == 'quantised' else guard.unquantised_value}"
    )


def _head(draft: RecipeText) -> Iterator[str]:
    weights, related_recipes, fitting = draft.weights, draft.related_recipes, draft.fitting
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
    if related_recipes.starter.container:
        yield f"# The image of recipe {related_recipes.starter.name}."
        yield f"container: {related_recipes.starter.container}"
    else:
        as_that = f"as recipe {related_recipes.starter.name}"
        yield f"# Without `container`, {as_that}: the engine of the host's venv."
    yield f"min_nodes: {hosts}"
    yield f"max_nodes: {hosts}"


def _metadata(draft: RecipeText) -> Iterator[str]:
    weights = draft.weights
    name = weights.model.rpartition("/")[2]
    yield "metadata:"
    yield f"  description: {_scalar(f'{name} on {weights.engine.title}')}"
    storage = weights.scheme or weights.checkpoint.quantisation
    if storage == "none":
        yield f"  model_dtype: {weights.checkpoint.dtype or 'bfloat16'}"
    elif storage:
        yield f"  quantization: {_scalar(storage)}"


def _defaults(draft: RecipeText) -> Iterator[str]:
    yield "defaults:"
    text = ""
    for key, value, comment in _settings(draft):
        if comment and comment != text:
            yield f"  # {comment}"
        text = comment
        yield f"  {key}: {_scalar(value)}"


def _settings(draft: RecipeText) -> Iterator[tuple[str, Any, str]]:
    """Yield the key, value and comment of each entry of `defaults`."""
    engine, related_recipes, fitting = draft.weights.engine, draft.related_recipes, draft.fitting
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
        # The engine reserves the memory of its whole context when it starts.
        yield "max_model_len", _UNKNOWN_CONTEXT, "Ours: how much memory a token takes is not known."
    if engine.share:
        yield "max_num_seqs", _SEQUENCES, "Ours: people on one Spark are few."
    nearest = related_recipes.nearest
    origin = f"Of recipe {nearest_words(related_recipes)}." if nearest else ""
    if nearest and related_recipes.same_storage and "moe_backend" in nearest.defaults:
        yield "moe_backend", nearest.defaults["moe_backend"], f"The freeze guard. {origin}"
    for key, value in related_recipes.family_values.items():
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


def _env(draft: RecipeText) -> Iterator[str]:
    nearest = draft.related_recipes.nearest
    if (
        nearest
        and draft.related_recipes.same_storage
        and (guard_variables := freeze_guard.variables(nearest))
    ):
        yield f"# Of recipe {nearest.name}."
        yield "env:"
        yield from (f"  {key}: {json.dumps(value)}" for key, value in guard_variables.items())


def _command(draft: RecipeText) -> Iterator[str]:
    engine, related_recipes = draft.weights.engine, draft.related_recipes
    words = [" ".join(engine.entries[0])]
    if engine.positional_model:
        words[0] += " {model}"
    else:
        model_flag = _HUB if _HUB in engine.hub_model else engine.spellings("model")[0]
        words.append(f"{model_flag} {{model}}")
    for key, value, _ in _settings(draft):
        if value is not False:
            words.append(f"{engine.spellings(key)[0]} {{{key}}}")
    nearest_command = serve_command(related_recipes.nearest or related_recipes.starter)
    words += [
        flag
        for flag in _SWITCHES
        if flag in nearest_command and (related_recipes.family_values or flag not in _OF_TOOLS)
    ]
    yield "command: |"
    yield from (f"  {'  ' * bool(index)}{word} \\" for index, word in enumerate(words[:-1]))
    yield f"    {words[-1]}"


def _executor(draft: RecipeText) -> Iterator[str]:
    starter = draft.related_recipes.starter
    if starter.container and starter.executor_config:
        yield f"# Of recipe {starter.name}."
        yield "executor_config:"
        yield from _yaml_lines(starter.executor_config)


def _block(draft: RecipeText) -> Iterator[str]:
    weights, checkpoint, related_recipes = (
        draft.weights,
        draft.weights.checkpoint,
        draft.related_recipes,
    )
    nearest = related_recipes.nearest
    yield "lockstep:"
    yield f"  engine: {weights.engine.name}"
    if checkpoint.experts is not None:
        if guard := guard_words(draft):
            yield f"  # By its configuration. So each start gets the freeze guard, {guard}."
        yield f"  moe: {_scalar(checkpoint.experts != 'none')}"
    vision = draft.knowledge.checkpoint(weights.model).vision
    if vision is not None or checkpoint.sees is not None:
        by = "its mmproj file" if checkpoint.vision_tensors is None else "the names of its tensors"
        yield f"  # By {by if vision is None else 'catalogue/checkpoints.yaml'}."
        yield f"  vision: {_scalar(checkpoint.sees if vision is None else vision)}"
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


def _checkpoint(draft: RecipeText) -> Iterator[str]:
    """Yield sizes and shapes in the form of an entry of ``catalogue/checkpoints.yaml``."""
    weights, shapes = draft.weights, draft.weights.checkpoint.architecture
    model = draft.knowledge.checkpoint(weights.model)
    if model.weights_gb and model.architecture:
        return
    yield "  # As an entry of catalogue/checkpoints.yaml, which does not know these weights."
    yield "  checkpoint:"
    if storage := weights.scheme or weights.checkpoint.quantisation:
        storage = (weights.checkpoint.dtype or "bfloat16") if storage == "none" else storage
        yield f"    quantisation: {_scalar(storage)}"
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
    """Return the fields of a dataclass that differ from their defaults, without `layers`."""
    values = {item.name: (getattr(value, item.name), item.default) for item in fields(value)}
    return {
        name: value_text
        for name, (value_text, usual) in values.items()
        if name != "layers" and value_text is not None and (usual is MISSING or value_text != usual)
    }


def _yaml_lines(value: Mapping[str, Any]) -> list[str]:
    text = yaml.safe_dump(dict(value), sort_keys=False)
    return [f"  {line}" for line in text.splitlines()]


def _scalar(value: Any) -> str:
    """Return a value as YAML writes it on a line of its own."""
    text: str = yaml.safe_dump(value, width=10_000, allow_unicode=True)
    return text.splitlines()[0]
