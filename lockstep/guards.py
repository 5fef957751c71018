"""The freeze guard: keep vLLM off FlashInfer's MoE kernels on a Spark.

On compute capability 12.1 these kernels were seen to take the whole host down (article 000,
2026-05), and the FP4 one to end with an illegal instruction (flashinfer-ai/flashinfer#2065,
2025-11-08). vLLM's automatic choice there is FlashInfer's CUTLASS kernel for NVFP4, and for FP8
with one scale per tensor: it counts the family 12.x as supported (vLLM at 8e6f4314, 2026-03-16:
fused_moe/oracle/nvfp4.py, oracle/fp8.py and flashinfer_cutlass_moe.py).

The guard is `--moe-backend`, which wins over everything else (vllm-project/vllm#33807, 2026-02-25).
Whether an engine takes it, its own parser says on the host (`onhost/engine_parser.py`). Until it
has answered, the flag is given: an engine without it ends at once and says why, while a missing
guard freezes the machine. An engine that answered no gets the variables that take FlashInfer's
kernels out of the automatic choice (same sources).

`VLLM_FLASHINFER_MOE_BACKEND=latency`, which article 000 names, is no guard: it is read only where
`VLLM_USE_FLASHINFER_MOE_FP4` or `…_FP8` is on, and means CUTLASS on every GPU outside the family
10.x (vLLM at 8e6f4314, quantization/utils/flashinfer_utils.py). vLLM dropped it, and the other
variables, on 2026-06-11 (vllm-project/vllm#44992).
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep import flags
from lockstep.onhost.engine_parser import MOE_BACKENDS, MOE_FLAG
from lockstep.recipes import Recipe

VARIABLE = "VLLM_FLASHINFER_MOE_BACKEND"
FLAG = (MOE_FLAG,)
WITHOUT_FLAG = {"VLLM_USE_FLASHINFER_MOE_FP4": "0", "VLLM_USE_FLASHINFER_MOE_FP8": "0"}
#: Values of the flag that lead to FlashInfer's CUTLASS kernels, by name or by the automatic choice.
FREEZING = frozenset({"auto", "flashinfer_cutlass"})

# Unquantised experts refuse Marlin, a weight-only kernel ("not supported for unquantized MoE",
# vLLM's oracle/unquantized.py, read 2026-11); quantised ones take it on every GPU since 7.5, and
# NVIDIA's Spark playbooks use it (dgx-spark-playbooks, nvidia/nemotron and nvidia/vllm, 2026-07).
_QUANTISED, _UNQUANTISED = MOE_BACKENDS
_PLAIN_TYPES = frozenset({"bf16", "bfloat16", "fp16", "float16", "half", "none", "fp32", "float32"})


def environment(recipe: Recipe, moe_flag: bool = True) -> dict[str, str]:
    """The guard's variables for an engine whose parser lacks the flag; {} for every other.

    Also for a recipe that does not say whether it is a mixture of experts: a dense model ignores
    them.
    """
    if moe_flag or recipe.engine != "vllm" or recipe.lockstep.moe is False:
        return {}
    return dict(WITHOUT_FLAG)


def obsolete_variables(recipe: Recipe, moe_flag: bool = True) -> frozenset[str]:
    """Variables of a recipe that mean nothing beside the flag, and that newer engines refuse."""
    if moe_flag and recipe.engine == "vllm" and recipe.lockstep.moe:
        return frozenset({VARIABLE})
    return frozenset()


def arguments(recipe: Recipe, argv: Sequence[str], moe_flag: bool = True) -> tuple[str, ...]:
    """The guard's flags to append to ``argv``; () where none is needed or the recipe has one.

    Only for recipes that say `lockstep.moe: true`: whether experts are quantised must be known,
    because a backend that does not fit them stops the engine.
    """
    if not moe_flag or recipe.engine != "vllm" or not recipe.lockstep.moe:
        return ()
    if flags.find(argv, FLAG):
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
