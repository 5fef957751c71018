"""Fixtures for tests of a fit: the catalogue, one H200 as a machine, and dense models for it."""

from dataclasses import replace

from lockstep.checkpoints.architecture import Architecture, Layers
from lockstep.checkpoints.known_checkpoints import GIB, KnownCheckpoint
from lockstep.checkpoints.step import step_of
from lockstep.fit import catalogue
from lockstep.fit.fit import Fit, fit
from lockstep.recipes.sizing import serving

KNOWN = catalogue.load()
SPARK = KNOWN.knowledge.hardware["dgx-spark"]
#: MemTotal of the Sparks with published figures, GiB.
MOST_GIB = SPARK.gib("memory_most_gib")
CARD = replace(
    SPARK,
    memory_total_gib=replace(SPARK.memory_total_gib, value=139.8),
    reserve_gib=replace(SPARK.reserve_gib, value=1),
)


def answer(name: str, **settings: object) -> Fit:
    """The fit of a recipe of the catalogue on a Spark of 121.69 GiB, with these settings."""
    recipe = KNOWN.recipes[name]
    changed_serving = replace(serving(recipe), **settings) if settings else None  # type: ignore[arg-type]
    return fit(recipe, KNOWN.knowledge, total=MOST_GIB, asked=changed_serving)


def dense(layers: int, width: int) -> Architecture:
    """The shapes of a dense model of the Qwen3 family, whose MLP is three times as wide."""
    cached_layers = (Layers("full", layers, kv_heads=8, head_dim=128),)
    sizes = {"hidden_size": width, "intermediate_size": 3 * width, "num_key_value_heads": 8}
    sizes |= {"num_attention_heads": max(16, width // 128), "head_dim": 128}
    step = step_of({"model_type": "qwen3"}, sizes)
    return Architecture(cached_layers, 40960, dense=True, vocabulary=151936, width=width, step=step)


def dense_model(name: str, layers: int, width: int, weights_gib: float) -> KnownCheckpoint:
    """A dense model of `dense` with its weights."""
    size = replace(SPARK.memory_total_gib, value=weights_gib * GIB / 1e9, unit="GB")
    return KnownCheckpoint(name, weights_gb=size, architecture=dense(layers, width))
