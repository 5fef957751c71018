"""Sizes and shapes from a recipe's own `metadata` (sparkrun's keys)."""

from __future__ import annotations

from typing import Any

from lockstep.checkpoints.architecture import Architecture, Layers
from lockstep.core.figures import Figure
from lockstep.recipes.recipe_file import Recipe


def stated_weights(recipe: Recipe) -> Figure | None:
    """Return `model_vram` (GB), or `model_params` times `quant_bits`; None where none is stated."""
    stated_gib = _number(recipe.metadata.get("model_vram"))
    how = "metadata.model_vram"
    if stated_gib is None:
        parameters = _number(recipe.metadata.get("model_params"))
        bits = _number(recipe.metadata.get("quant_bits"))
        if parameters is None or bits is None or not 1 <= bits <= 32:
            return None
        stated_gib = parameters * bits / 8 / 1e9
        how = "metadata.model_params times quant_bits"
    if not 0 < stated_gib < 1e5:
        return None
    return Figure("weights", stated_gib, "GB", f"{how} of {recipe.path.name}", "", "computed")


def stated_architecture(recipe: Recipe) -> Architecture | None:
    """Return grouped-query attention from `num_layers`, `num_kv_heads`, `head_dim`, if stated."""
    sizes = [
        _number(recipe.metadata.get(key)) for key in ("num_layers", "num_kv_heads", "head_dim")
    ]
    if any(size is None or not 0 < size < 1e6 for size in sizes):
        return None
    layers, heads, width = (int(size or 0) for size in sizes)
    return Architecture((Layers("full", layers, kv_heads=heads, head_dim=width),))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    text = str(value).strip()
    scale = {"B": 1e9, "M": 1e6, "K": 1e3}.get(text[-1:].upper())
    try:
        return float(text[:-1]) * scale if scale else float(text)
    except ValueError:
        return None
