"""The freeze guard: keep an engine off the kernels that were seen to freeze a Spark.

The engine's own module has the flag and the reason (`Engine.guard`).
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.onhost.engines import CommandGuard
from lockstep.recipes import flags
from lockstep.recipes.recipe_file import Recipe

_PLAIN_TYPES = frozenset({"bf16", "bfloat16", "fp16", "float16", "half", "none", "fp32", "float32"})


def variables(recipe: Recipe) -> dict[str, str]:
    """Return the recipe's variables without the guard's old variable.

    It has no effect beside the flag, and newer engines refuse it.
    """
    guard = _guard(recipe)
    obsolete = guard.variable if guard else None
    return {key: value for key, value in recipe.env.items() if key != obsolete}


def arguments(recipe: Recipe, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the guard's flag and its value; () where none is needed."""
    guard = _guard(recipe)
    if guard is None:
        return ()
    return (
        guard.flag,
        guard.quantised_value if is_quantised(recipe, argv) else guard.unquantised_value,
    )


def is_quantised(recipe: Recipe, argv: Sequence[str] = ()) -> bool:
    """Tell whether the experts are stored quantised, from flags, metadata, or the model's name."""
    if flags.value_of(argv, ("--quantization", "-q")):
        return True
    for key in ("quantization", "model_dtype"):
        stated_quantisation = str(recipe.metadata.get(key) or "").lower()
        if stated_quantisation:
            return stated_quantisation not in _PLAIN_TYPES
    name = recipe.model.lower()
    return any(mark in name for mark in ("fp8", "fp4", "int4", "int8", "awq", "gptq", "quant"))


def _guard(recipe: Recipe) -> CommandGuard | None:
    """Return the engine's guard for a recipe that says `lockstep.moe: true`; None for others.

    It must be known whether experts are quantised, because a wrong backend stops the engine.
    """
    return recipe.engine.guard if recipe.engine and recipe.lockstep.moe else None
