"""Overrides of a model: words of the engine's command line, which every reader takes from there.

Some settings of a recipe or model stand in another place, and lock, weights, fit, licence, guard
and unit read them there. An override of such a setting would reach only some readers, so it is
refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields

from lockstep.inventory.refusals import Refusals
from lockstep.inventory.settings import ModelData
from lockstep.onhost.core.schema import SchemaFault
from lockstep.onhost.engines import Engine
from lockstep.recipes import flags
from lockstep.recipes.block import LockstepBlock
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.spelling import in_full, nearest_key

# These decide what is fetched, and with it licence, memory and freeze guard. Engines look for it
# only in the hub's cache, which `paths.hub_cache` names.
_CONTENT = ("model", "revision", "draft_model", "draft_revision", "download_dir")
#: Recipe key → the model's own key for the same setting.
_MODEL = {field.name: field.name for field in fields(ModelData)} | {
    "host": "bind",
    "container": "image",
}
# Keys that a recipe has beside its command line.
_RECIPE = {field.name for field in fields(LockstepBlock)} | {
    field.name for field in fields(Recipe) if field.name not in ("name", "path", "hooks")
}


def override_refusals(
    key: str, data: ModelData, recipe: Recipe, catalogue: Iterable[Recipe], overrides_key: str
) -> Refusals:
    """Return a refusal for each override that would not reach every reader of its setting.

    Args:
        key: The model's place in the inventory ("models.qwen").
        data: The model.
        recipe: One of its recipes.
        catalogue: Every recipe, for the flags that are known.
        overrides_key: Place of this recipe's keys, "overrides" or "fallback_overrides".
    """
    engine, ranks = engine_of(recipe), set[str]()
    overrides: Mapping[str, object] = getattr(data, overrides_key) or {}
    if data.cluster is not None:
        ranks = set(_rank_keys(engine))
    yield from _wrong_values(f"{key}.{overrides_key}", overrides, engine)
    for name, value in overrides.items():
        setting_key, value_text = f"{key}.{overrides_key}.{name}", repr(value)[:60]
        if _is_one_of(engine, name, _CONTENT) or (
            set(engine.spellings(name)) & {*engine.hub_model}
        ):
            yield SchemaFault(
                f"{setting_key}: an override cannot change what is fetched",
                found=value_text,
                remedy=f"Make a recipe: copy {recipe.path.name} under another name, change its "
                f"model (a hub id or a full path), model_revision or draft there, and name it in "
                f"{key}.recipe.",
            )
        elif own := next((own for own in _MODEL if _is_one_of(engine, name, (own,))), None):
            yield SchemaFault(
                f"{setting_key} is a setting of the model, not of the engine",
                found=value_text,
                remedy=f"Set {key}.{_MODEL[own]}.",
            )
        elif name in _RECIPE:
            yield SchemaFault(
                f"{setting_key} is said by the recipe alone",
                found=value_text,
                remedy=f"Make a recipe: copy {recipe.path.name} under another name, change {name} "
                f"there, and name it in {key}.recipe.",
            )
        elif _is_one_of(engine, name, ranks):
            yield SchemaFault(
                f"{setting_key}: the cluster decides it for each rank",
                found=value_text,
                remedy="Remove it.",
            )
        elif name in flags.NOT_FLAGS and "{" + name + "}" not in recipe.command:
            yield SchemaFault(
                f"{setting_key} is no flag of an engine", found=value_text, remedy="Remove it."
            )
        elif near := nearest_key(name, engine, (recipe, *catalogue)):
            yield SchemaFault(
                f"{setting_key} is no flag of {engine.title} that is known here",
                found=value_text,
                remedy=f"Did you mean {near!r}?",
            )
        elif full := _in_full(engine, name):
            yield SchemaFault(
                f"{setting_key} is the beginning of a flag",
                found=value_text,
                remedy=f"Write {full}.",
            )


def _in_full(engine: Engine, name: str) -> str:
    """Return the full key that a key abbreviates, as the engine's parser takes it; "" for none."""
    full_flag = "--" + name.replace("_", "-")
    full = full_flag if name in engine.flags else in_full(engine, full_flag)
    return "" if full == full_flag else full.removeprefix("--").replace("-", "_")


def _wrong_values(
    key: str, overrides: Mapping[str, object], engine: Engine
) -> Iterator[SchemaFault]:
    """Refuse figures with which no engine starts; the engine judges "auto" and the like."""
    for name, value in overrides.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if _is_one_of(engine, name, ("gpu_memory_utilization",)) and not 0 < value <= 1:
            yield SchemaFault(
                f"{key}.{name} must be a share of the memory",
                found=str(value),
                allowed="more than 0, at most 1",
            )
        elif _is_one_of(engine, name, ("max_model_len",)) and value == 0:
            yield SchemaFault(
                f"{key}.{name} must be a number of tokens",
                found=str(value),
                allowed="1 or more",
                remedy="Leave it out for the recipe's own.",
            )


def _is_one_of(engine: Engine, name: str, keys: Collection[str]) -> bool:
    """Tell whether a key, however it is spelled, means the flag of one of these keys."""
    if name in keys:
        return True
    spellings = {word for key in keys for word in engine.spellings(key)}
    return not spellings.isdisjoint(engine.spellings(name))


def _rank_keys(engine: Engine) -> Iterator[str]:
    """Yield the recipe keys that a cluster sets for its ranks."""
    for copies in (1, 2):
        yield from engine.rank_recipe_keys(rank=1, size=2, master="", port=1, copies=copies)
