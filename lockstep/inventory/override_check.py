"""Overrides of a target: words of the engine's command line, which every reader has from there.

What a recipe or a target decides in another place is read from that place by lock, weights, fit,
licence, guard and unit. An override of it would reach some of them alone, so it is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields

from lockstep.inventory.refusals import Refusals
from lockstep.inventory.settings import TargetData
from lockstep.onhost.core.schema import Refusal
from lockstep.onhost.engines import Engine
from lockstep.recipes import flags
from lockstep.recipes.block import LockstepBlock
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.spelling import in_full

# They decide what is fetched, and with it licence, memory and freeze guard. Engines look for it in
# the hub's cache alone, which `paths.hub_cache` names.
_CONTENT = ("model", "revision", "draft_model", "draft_revision", "download_dir")
#: Where a target itself says what an override would.
_TARGET = {each.name: each.name for each in fields(TargetData)} | {
    "host": "bind",
    "container": "image",
}
# What a recipe says beside its command line.
_RECIPE = {each.name for each in fields(LockstepBlock)} | {
    each.name for each in fields(Recipe) if each.name not in ("name", "path", "hooks")
}
# A word in braces, of a command's template.
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_FLAG = re.compile(r"(?<!\S)--?([A-Za-z][\w-]*)")
# Two flags of one engine differ by a whole word, a slip in letters of words: with this no flag of
# vLLM 0.32 or SGLang 0.5.9 passes for a slip of one that is known here (2026-11-27).
_ALIKE = 0.7


def override_refusals(
    key: str, data: TargetData, recipe: Recipe, catalogue: Iterable[Recipe], which: str
) -> Refusals:
    """Each override of a target that would not reach all who read what it is about.

    Args:
        key: The target's place in the inventory ("targets.qwen").
        data: The target.
        recipe: One of its recipes.
        catalogue: Every recipe, for the flags that are known.
        which: Where the keys of this recipe are, "overrides" or "fallback_overrides".
    """
    engine, ranks = engine_of(recipe), set[str]()
    given: Mapping[str, object] = getattr(data, which) or {}
    if data.cluster is not None:
        ranks = set(_rank_keys(engine))
    yield from _wrong_values(f"{key}.{which}", given, engine)
    for name, value in given.items():
        what, found = f"{key}.{which}.{name}", repr(value)[:60]
        if _is_one_of(engine, name, _CONTENT) or (
            set(engine.spellings(name)) & {*engine.hub_model}
        ):
            yield Refusal(
                f"{what}: an override cannot change what is fetched",
                found=found,
                remedy=f"Make a recipe: copy {recipe.path.name} under another name, change its "
                f"model (a hub id or a full path), model_revision or draft there, and name it in "
                f"{key}.recipe.",
            )
        elif own := next((own for own in _TARGET if _is_one_of(engine, name, (own,))), None):
            yield Refusal(
                f"{what} is a setting of the target, not of the engine",
                found=found,
                remedy=f"Set {key}.{_TARGET[own]}.",
            )
        elif name in _RECIPE:
            yield Refusal(
                f"{what} is said by the recipe alone",
                found=found,
                remedy=f"Make a recipe: copy {recipe.path.name} under another name, change {name} "
                f"there, and name it in {key}.recipe.",
            )
        elif _is_one_of(engine, name, ranks):
            yield Refusal(
                f"{what}: the cluster decides it for each rank", found=found, remedy="Remove it."
            )
        elif name in flags.NOT_FLAGS and "{" + name + "}" not in recipe.command:
            yield Refusal(f"{what} is no flag of an engine", found=found, remedy="Remove it.")
        elif near := _nearest_flag(name, engine, recipe, catalogue):
            yield Refusal(
                f"{what} is no flag of {engine.title} that is known here",
                found=found,
                remedy=f"Did you mean {near!r}?",
            )
        elif full := _in_full(engine, name):
            yield Refusal(
                f"{what} is the beginning of a flag", found=found, remedy=f"Write {full}."
            )


def _in_full(engine: Engine, name: str) -> str:
    """The key whose flag begins with this one's, as its parser takes it; "" where none does."""
    written = "--" + name.replace("_", "-")
    full = written if name in engine.flags else in_full(engine, written)
    return "" if full == written else full.removeprefix("--").replace("-", "_")


def _nearest_flag(name: str, engine: Engine, recipe: Recipe, catalogue: Iterable[Recipe]) -> str:
    """A known key that an unknown one is a slip of; "" for a known one, or one of its own.

    No list has every flag of every release: what is like no other is for the engine's own parser,
    which the deploy asks before it changes a unit.
    """
    known = {
        *engine.flags,
        *(word for words in engine.flags.values() for word in words),
        *_PLACEHOLDER.findall(recipe.command or ""),
    }
    for each in (recipe, *catalogue):
        if each.engine == engine:
            known |= {*each.defaults, *_FLAG.findall(each.command or "")}
    keys = {each.lstrip("-").replace("-", "_") for each in known}
    key = name.replace("-", "_")
    if {key, key.removeprefix("no_")} & keys:
        return ""
    return next((each for each in sorted(keys) if _is_slip(key.lower(), each)), "")


def _is_slip(key: str, of: str) -> bool:
    words, others = key.split("_"), of.split("_")
    return "".join(words) == "".join(others) or (
        len(words) == len(others)
        and all(
            one == other or difflib.SequenceMatcher(None, one, other).ratio() > _ALIKE
            for one, other in zip(words, others, strict=True)
        )
    )


def _wrong_values(key: str, given: Mapping[str, object], engine: Engine) -> Iterator[Refusal]:
    """Figures with which no engine starts; "auto" and the like are the engine's to judge."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if _is_one_of(engine, name, ("gpu_memory_utilization",)) and not 0 < value <= 1:
            yield Refusal(
                f"{key}.{name} must be a share of the memory",
                found=str(value),
                allowed="more than 0, at most 1",
            )
        elif _is_one_of(engine, name, ("max_model_len",)) and value == 0:
            yield Refusal(
                f"{key}.{name} must be a number of tokens",
                found=str(value),
                allowed="1 or more",
                remedy="Leave it out for the recipe's own.",
            )


def _is_one_of(engine: Engine, name: str, keys: Collection[str]) -> bool:
    """Whether a key, however it is spelled, means the flag of one of these."""
    if name in keys:
        return True
    spelled = {word for key in keys for word in engine.spellings(key)}
    return not spelled.isdisjoint(engine.spellings(name))


def _rank_keys(engine: Engine) -> Iterator[str]:
    """Recipe keys that a cluster sets for its ranks."""
    for copies in (1, 2):
        yield from engine.rank_arguments(rank=1, size=2, master="", port=1, copies=copies)
