"""The freeze guard: keep vLLM off the MoE kernels that brick a Spark's desktop.

vLLM's FlashInfer MoE throughput path is broken on compute capability 12.1; the unified-memory
cascade it triggers takes the whole host down (article 000, 2026-05: the fix that was measured is
`VLLM_FLASHINFER_MOE_BACKEND=latency`). That variable exists up to vLLM 0.21, is deprecated in 0.22
and silently ignored from 0.24 on, where `--moe-backend` replaces it (vllm-project/vllm#33807 added
the flag in February 2026; 0.18 has it). Lockstep changes over at 0.22: below, the variable that the
articles measured; from there on, the flag. For an engine of unknown version both are given: an
unknown variable only warns, and an unknown flag fails at once and visibly, while a missing guard
freezes the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import InvalidVersion, Version

from lockstep import flags
from lockstep.recipes import Recipe

VARIABLE = "VLLM_FLASHINFER_MOE_BACKEND"
FLAG = ("--moe-backend",)
FLAG_SINCE = Version("0.22")

# Unquantised experts refuse Marlin, a weight-only kernel ("not supported for unquantized MoE",
# vLLM's oracle/unquantized.py, read 2026-11); quantised ones take it on every GPU since 8.0, and
# NVIDIA's own Spark playbook uses it (2026-06).
_QUANTISED, _UNQUANTISED = "marlin", "triton"
_PLAIN_TYPES = frozenset({"bf16", "bfloat16", "fp16", "float16", "half", "none", "fp32", "float32"})


def release(engine_version: str | None) -> Version | None:
    """The release a version belongs to ("0.19.2rc1.dev7+gabc" → 0.19.2), None where unknown."""
    try:
        return Version(Version(engine_version or "").base_version)
    except InvalidVersion:
        return None


def environment(recipe: Recipe, engine_version: str | None = None) -> dict[str, str]:
    """The guard's variables for this recipe on this engine; {} where none is needed."""
    known = release(engine_version)
    if recipe.engine != "vllm" or recipe.lockstep.moe is False:
        return {}
    return {} if known and known >= FLAG_SINCE else {VARIABLE: "latency"}


def obsolete_variables(engine_version: str | None = None) -> frozenset[str]:
    """Variables that this engine would ignore, so that a unit must not claim them."""
    known = release(engine_version)
    return frozenset({VARIABLE}) if known and known >= FLAG_SINCE else frozenset()


def arguments(
    recipe: Recipe, argv: Sequence[str], engine_version: str | None = None
) -> tuple[str, ...]:
    """The guard's flags to append to ``argv``; () where none is needed or the recipe has one.

    Only for recipes that say `lockstep.moe: true`: whether experts are quantised must be known,
    because a backend that does not fit them stops the engine.
    """
    known = release(engine_version)
    if recipe.engine != "vllm" or not recipe.lockstep.moe or flags.find(argv, FLAG):
        return ()
    if known and known < FLAG_SINCE:
        return ()
    return (*FLAG, _QUANTISED if quantised(recipe, argv) else _UNQUANTISED)


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
