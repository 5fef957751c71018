"""The freeze guard: keep an engine off the kernels that were seen to freeze a Spark.

Which flag does it, and why, stands in the engine's own module (`Engine.guard`).
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.onhost.engines import Guard
from lockstep.recipes import flags
from lockstep.recipes.recipe_file import Recipe

_PLAIN_TYPES = frozenset({"bf16", "bfloat16", "fp16", "float16", "half", "none", "fp32", "float32"})


def guarded(recipe: Recipe, moe_flag: bool = True) -> dict[str, str]:
    """The guard's variables under the recipe's own, which win, as long as they mean anything.

    The guard's are for an engine whose parser lacks the flag, also where a recipe does not say
    whether it is a mixture of experts: a dense model ignores them. Beside the flag the old variable
    means nothing, and newer engines refuse it.
    """
    guard = _guard(recipe)
    if guard is None:
        return dict(recipe.env)
    if moe_flag:
        obsolete = guard.variable if recipe.lockstep.moe else None
        return {key: value for key, value in recipe.env.items() if key != obsolete}
    own = {} if recipe.lockstep.moe is False else guard.without_flag
    return {**own, **recipe.env}


def arguments(recipe: Recipe, argv: Sequence[str], moe_flag: bool = True) -> tuple[str, ...]:
    """The guard's flags to append to ``argv``; () where none is needed or the recipe has one.

    Only for recipes that say `lockstep.moe: true`: whether experts are quantised must be known,
    because a backend that does not fit them stops the engine.
    """
    guard = _guard(recipe)
    if not moe_flag or guard is None or not recipe.lockstep.moe:
        return ()
    if flags.find(argv, (guard.flag,)):
        return ()
    return (guard.flag, guard.quantised if quantised(recipe, argv) else guard.unquantised)


def quantised(recipe: Recipe, argv: Sequence[str] = ()) -> bool:
    """Whether the experts are stored quantised, from flags, metadata, or the model's name."""
    if flags.value_of(argv, ("--quantization", "-q")):
        return True
    for key in ("quantization", "model_dtype"):
        stated = str(recipe.metadata.get(key) or "").lower()
        if stated:
            return stated not in _PLAIN_TYPES
    name = recipe.model.lower()
    return any(mark in name for mark in ("fp8", "fp4", "int4", "int8", "awq", "gptq", "quant"))


def _guard(recipe: Recipe) -> Guard | None:
    return recipe.engine.guard if recipe.engine else None
