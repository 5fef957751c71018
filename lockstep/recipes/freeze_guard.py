"""The freeze guard: keep an engine off the kernels that were seen to freeze a Spark.

Which flag does it, and why, stands in the engine's own module (`Engine.guard`).
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.onhost.engines import Guard
from lockstep.recipes import flags
from lockstep.recipes.recipe_file import Recipe

_PLAIN_TYPES = frozenset({"bf16", "bfloat16", "fp16", "float16", "half", "none", "fp32", "float32"})


def variables(recipe: Recipe) -> dict[str, str]:
    """The recipe's variables without the old one of the guard.

    Beside the flag it means nothing, and newer engines refuse it.
    """
    guard = _guard(recipe)
    obsolete = guard.variable if guard else None
    return {key: value for key, value in recipe.env.items() if key != obsolete}


def arguments(recipe: Recipe, argv: Sequence[str]) -> tuple[str, ...]:
    """The guard's flag and its value; () where none is needed."""
    guard = _guard(recipe)
    if guard is None:
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
    """Only for recipes that say `lockstep.moe: true`: whether experts are quantised must be known,
    because a backend that does not fit them stops the engine.
    """
    return recipe.engine.guard if recipe.engine and recipe.lockstep.moe else None
