"""One small kernel of each back-end of vLLM, compared with plain PyTorch.

Runs on the engine's Python with a GPU, in a process of its own, because a kernel may end it. The
functions of vLLM that are called here have kept their arguments from 0.17 to 0.32 (read in 0.17.1,
0.20.2, 0.26.0 and 0.32.0, 2026-11).
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from lockstep.onhost.engines.engine_parser import EngineUnavailable, recipe_environment

HEADS, KV_HEADS, HEAD, TOKENS, PAGE = 4, 2, 128, 64, 16
EXPERTS, CHOSEN, HIDDEN, INNER = 8, 2, 256, 256
#: A function like `run`.
Kernel = Callable[[str, Mapping[str, str], tuple[str, ...]], "float | str"]


def compare_kernel(
    part: str, environment: Mapping[str, str], prefixes: tuple[str, ...]
) -> float | str:
    """Run a part's kernel with a recipe's variables.

    Returns:
        The difference of its result from PyTorch's, as a share of that; else the fault.

    Raises:
        EngineUnavailable: There is no kernel to run.
    """
    if part not in KERNELS:
        raise EngineUnavailable("no small kernel of it is known here")
    kernel, most = KERNELS[part]
    try:
        differs = _kernel_difference(kernel, environment, prefixes)
    except EngineUnavailable:
        raise
    except TypeError as error:
        message = f"this vLLM takes other arguments: {error_line(error)}"
        raise EngineUnavailable(message) from error
    except (Exception, SystemExit) as error:
        return error_line(error)
    # A NaN is no agreement either.
    if not differs <= most:
        return f"its result is {differs:.1%} off PyTorch's; rounding makes at most {most:.0%}"
    return differs


def error_line(error: BaseException) -> str:
    """Return the kind of an error and its first line."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _kernel_difference(
    kernel: Callable[[], tuple[Any, Any]], environment: Mapping[str, str], prefixes: tuple[str, ...]
) -> float:
    import torch

    with recipe_environment(environment, prefixes), torch.inference_mode(), _set_config():
        torch.manual_seed(1)
        _import_operators()
        result, reference = (tensor.double().cpu() for tensor in kernel())
    return float((result - reference).norm() / reference.norm())


def _set_config() -> Any:
    return _first_importable("vllm.config:set_current_vllm_config")(
        _first_importable("vllm.config:VllmConfig")()
    )


def _first_importable(*places: str) -> Any:
    """Return the first of these, as MODULE:NAME, that this vLLM has."""
    for place in places:
        module, _, name = place.partition(":")
        try:
            imported_module = importlib.import_module(module)
        except ModuleNotFoundError as error:
            is_moved = module.startswith("vllm.") and f"{module}.".startswith(f"{error.name}.")
            if not is_moved:
                raise
            continue
        if hasattr(imported_module, name):
            return getattr(imported_module, name)
    raise EngineUnavailable(f"this vLLM has no {places[0]}")


def _import_operators() -> Any:
    """Import vLLM's own operators, which loads its compiled parts as an engine's start does."""
    return importlib.import_module("vllm._custom_ops")


def _random(*shape: int) -> Any:
    import torch

    return torch.randn(shape, device="cuda", dtype=torch.bfloat16) / shape[-1] ** 0.25


def _indices(*values: int) -> Any:
    import torch

    return torch.tensor(values, device="cuda", dtype=torch.int32)


def _matrix_product_results() -> tuple[Any, Any]:
    first_matrix, right = _random(TOKENS, HIDDEN), _random(HIDDEN, INNER)
    return first_matrix @ right, first_matrix.cpu().float() @ right.cpu().float()


def _norm_results() -> tuple[Any, Any]:
    import torch

    rows, weight = _random(TOKENS, HIDDEN), _random(HIDDEN)
    result = torch.empty_like(rows)
    _import_operators().rms_norm(result, rows, weight, 1e-6)
    wide = rows.float()
    return result, wide * (wide.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.float()


def _sampler_results() -> tuple[Any, Any]:
    import torch

    # With one token allowed there is one choice, whichever sampler vLLM takes; no two are equally
    # likely.
    orders = [torch.randperm(HIDDEN, device=_indices().device) for _ in range(TOKENS)]
    logits = torch.stack(orders).float()
    best = logits.argmax(-1)
    sampler = _first_importable("vllm.v1.sample.ops.topk_topp_sampler:TopKTopPSampler")()
    only = _indices(*[1] * TOKENS)
    return sampler.forward(logits.clone(), {}, only, None)[0], best


def _reference_attention(query: Any, keys: Any, values: Any, scale: float) -> Any:
    """Compute causal attention; the query's tokens are the last ones."""
    import torch

    group = query.shape[1] // keys.shape[1]
    keys = keys.float().repeat_interleave(group, 1)
    values = values.float().repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * scale
    later_keys = torch.ones_like(scores, dtype=torch.bool).triu(1 + len(keys) - len(query))
    return torch.einsum(
        "hqk,khd->qhd", scores.masked_fill(later_keys, float("-inf")).softmax(-1), values
    )


def _random_qkv() -> tuple[Any, Any, Any]:
    query = _random(TOKENS, HEADS, HEAD)
    return query, _random(TOKENS, KV_HEADS, HEAD), _random(TOKENS, KV_HEADS, HEAD)


def _flash_attention() -> tuple[Any, Any]:
    query, keys, values = _random_qkv()
    versions = "vllm.v1.attention.backends.fa_utils"
    result = _first_importable(f"{versions}:flash_attn_varlen_func")(
        q=query,
        k=keys,
        v=values,
        max_seqlen_q=TOKENS,
        cu_seqlens_q=_indices(0, TOKENS),
        max_seqlen_k=TOKENS,
        cu_seqlens_k=_indices(0, TOKENS),
        softmax_scale=HEAD**-0.5,
        causal=True,
        fa_version=_first_importable(f"{versions}:get_flash_attn_version")(),
    )
    return result, _reference_attention(query, keys, values, HEAD**-0.5)


def _flashinfer_attention() -> tuple[Any, Any]:
    query, keys, values = _random_qkv()
    result = _first_importable("flashinfer:single_prefill_with_kv_cache")(
        query, keys, values, causal=True
    )
    return result, _reference_attention(query, keys, values, HEAD**-0.5)


def _triton_attention() -> tuple[Any, Any]:
    import torch

    query, keys, values = _random_qkv()
    result = torch.empty_like(query)
    _first_importable("vllm.v1.attention.ops.triton_unified_attention:unified_attention")(
        q=query,
        k=keys.view(-1, PAGE, KV_HEADS, HEAD),
        v=values.view(-1, PAGE, KV_HEADS, HEAD),
        out=result,
        cu_seqlens_q=_indices(0, TOKENS),
        max_seqlen_q=TOKENS,
        seqused_k=_indices(TOKENS),
        max_seqlen_k=TOKENS,
        softmax_scale=HEAD**-0.5,
        causal=True,
        window_size=(-1, -1),
        block_table=_indices(*range(TOKENS // PAGE)).unsqueeze(0),
        softcap=0,
        q_descale=None,
        k_descale=None,
        v_descale=None,
    )
    return result, _reference_attention(query, keys, values, HEAD**-0.5)


def _triton_mla() -> tuple[Any, Any]:
    """Decode a token as Mistral Small 4 does: a latent key for all heads, partly the value."""
    import torch

    heads, latent, splits = 16, 512, 4
    query, cache = _random(1, heads, latent + 64), _random(TOKENS, 1, latent + 64)
    result = torch.zeros(1, heads, latent, device="cuda", dtype=query.dtype)
    pages = cache.view(-1, PAGE, 1, latent + 64)
    decode = _first_importable("vllm.v1.attention.ops.triton_decode_attention:decode_attention_fwd")
    scale = (latent + 64) ** -0.5
    decode(
        query,
        pages,
        pages[..., :latent],
        result,
        torch.zeros(1, heads, device="cuda", dtype=query.dtype),
        _indices(*range(TOKENS // PAGE)).unsqueeze(0),
        _indices(TOKENS),
        torch.empty(1, heads, splits, latent + 1, device="cuda"),
        splits,
        scale,
        PAGE,
        # Not in 0.17, which infers it from the sizes.
        **({"is_mla": True} if "is_mla" in inspect.signature(decode).parameters else {}),
    )
    return result, _reference_attention(query, cache, cache[..., :latent], scale)


def _scale(tensor: Any, limit: float) -> Any:
    return (tensor.abs().max().float() / limit).reshape(1)


def _fp8_product() -> tuple[Any, Any]:
    import torch

    ops, capability = _import_operators(), _capability()
    first_matrix, right = _random(TOKENS, HIDDEN), _random(INNER, HIDDEN)
    if not ops.cutlass_scaled_mm_supports_fp8(capability):
        weight, packed_weight, scales = _quantize_marlin_fp8(right)
        apply = _first_importable(f"{_MARLIN}_fp8:apply_fp8_marlin_linear")
        size = {"size_n": INNER, "size_k": HIDDEN, "bias": None}
        return apply(
            first_matrix, packed_weight, scales, _marlin_workspace(), **size
        ), first_matrix.float() @ weight.float()
    scales = [_scale(matrix, 448.0) for matrix in (first_matrix, right)]
    stored_matrices = [
        (matrix.float() / scale).to(torch.float8_e4m3fn)
        for matrix, scale in zip((first_matrix, right), scales, strict=True)
    ]
    result = ops.cutlass_scaled_mm(
        stored_matrices[0], stored_matrices[1].t(), *scales, torch.bfloat16
    )
    wide = [matrix.float() * scale for matrix, scale in zip(stored_matrices, scales, strict=True)]
    return result, wide[0] @ wide[1].t()


def _fp4_product() -> tuple[Any, Any]:
    import torch

    ops = _import_operators()
    first_matrix, right = _random(TOKENS, HIDDEN), _random(INNER, HIDDEN)
    marlin = os.environ.get("VLLM_NVFP4_GEMM_BACKEND") == "marlin"
    if marlin or not ops.cutlass_scaled_mm_supports_fp4(_capability()):
        weight, packed_weight, scales, whole = _pack_marlin_fp4(right)
        apply = _first_importable(f"{_MARLIN}_fp4:apply_fp4_marlin_linear")
        size = {"size_n": INNER, "size_k": HIDDEN}
        result = apply(first_matrix, packed_weight, scales, whole, _marlin_workspace(), **size)
        return result, first_matrix.float() @ weight.float()
    wholes = [1 / _scale(matrix, 448.0 * 6.0) for matrix in (first_matrix, right)]
    (first_stored, one_scales), (two, two_scales) = (
        ops.scaled_fp4_quant(matrix, whole)
        for matrix, whole in zip((first_matrix, right), wholes, strict=True)
    )
    back = 1 / (wholes[0] * wholes[1])
    result = ops.cutlass_scaled_fp4_mm(
        first_stored, two, one_scales, two_scales, back, torch.bfloat16
    )
    return result, first_matrix.float() @ right.float().t()


def _capability() -> int:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return int(major * 10 + minor)


_MARLIN = "vllm.model_executor.layers.quantization.utils.marlin_utils"


def _marlin_workspace() -> Any:
    import torch

    return _first_importable(f"{_MARLIN}:marlin_make_workspace_new")(torch.device("cuda"))


def _quantize_marlin_fp8(weight: Any) -> Any:
    return _first_importable(f"{_MARLIN}_fp8:marlin_quant_fp8_torch")(weight, -1)


def _pack_marlin_fp4(weight: Any) -> Any:
    return _first_importable(f"{_MARLIN}_fp4:rand_marlin_weight_nvfp4_like")(weight, 16)


def _mixture_reference(states: Any, up: Any, down: Any, shares: Any, expert_ids: Any) -> Any:
    """Compute a mixture of experts, one token and expert after the other."""
    import torch

    result = torch.zeros_like(states, dtype=torch.float32)
    for token in range(len(states)):
        for share, expert in zip(shares[token], expert_ids[token], strict=True):
            gate, inner = (states[token].float() @ up[expert].float().t()).chunk(2)
            inner = torch.nn.functional.silu(gate) * inner
            result[token] += share.float() * (inner @ down[expert].float().t())
    return result


def _random_routed_tokens() -> tuple[Any, Any, Any]:
    """Return tokens, the shares of their experts, and the experts' ids: by vLLM's own kernel."""
    states = _random(TOKENS, HIDDEN)
    route = _first_importable("vllm.model_executor.layers.fused_moe:fused_topk")
    shares, expert_ids, *_ = route(states, _random(TOKENS, EXPERTS).float(), CHOSEN, True)
    return states, shares, expert_ids


def _triton_experts_and_reference() -> tuple[Any, Any]:
    states, shares, expert_ids = _random_routed_tokens()
    up, down = _random(EXPERTS, 2 * INNER, HIDDEN), _random(EXPERTS, HIDDEN, INNER)
    run_experts = _first_importable("vllm.model_executor.layers.fused_moe:fused_experts")
    reference = _mixture_reference(states, up, down, shares, expert_ids)
    return run_experts(states, up, down, shares, expert_ids), reference


def _marlin_experts_kernel(
    pack_weight: Callable[[Any], tuple[Any, ...]], storage: str
) -> Callable[[], tuple[Any, Any]]:
    def kernel() -> tuple[Any, Any]:
        import torch

        states, shares, expert_ids = _random_routed_tokens()
        layers = []
        for rows, columns in ((2 * INNER, HIDDEN), (HIDDEN, INNER)):
            packed_experts = [pack_weight(_random(rows, columns)) for _ in range(EXPERTS)]
            layers.append(
                [torch.stack(list(part)).contiguous() for part in zip(*packed_experts, strict=True)]
            )
        (up, up_packed, up_scales, *up_whole), (down, down_packed, down_scales, *down_whole) = (
            layers
        )
        moe_module = "vllm.model_executor.layers.fused_moe"
        run_experts = _first_importable(
            f"{moe_module}.experts.marlin_moe:fused_marlin_moe",
            f"{moe_module}.fused_marlin_moe:fused_marlin_moe",
        )
        result = run_experts(
            states,
            up_packed,
            down_packed,
            None,
            None,
            up_scales,
            down_scales,
            shares,
            expert_ids,
            quant_type_id=getattr(_first_importable("vllm.scalar_type:scalar_types"), storage).id,
            global_scale1=up_whole[0] if up_whole else None,
            global_scale2=down_whole[0] if down_whole else None,
        )
        reference = _mixture_reference(
            states, up.transpose(1, 2), down.transpose(1, 2), shares, expert_ids
        )
        return result, reference

    return kernel


#: Part, as `Engine.recipe_kernels` names it → its kernel, and the largest difference from
#: PyTorch's result: the rounding of 8 bits of mantissa, more if both sides were made FP4 (three
#: bits) on the way.
KERNELS: dict[str, tuple[Callable[[], tuple[Any, Any]], float]] = {
    "matrix product": (_matrix_product_results, 0.02),
    "normalisation": (_norm_results, 0.02),
    "sampler": (_sampler_results, 0.0),
    "attention FLASH_ATTN": (_flash_attention, 0.02),
    "attention FLASHINFER": (_flashinfer_attention, 0.02),
    "attention TRITON_ATTN": (_triton_attention, 0.02),
    "attention TRITON_MLA": (_triton_mla, 0.02),
    "FP8 product": (_fp8_product, 0.02),
    "FP4 product": (_fp4_product, 0.3),
    "experts triton": (_triton_experts_and_reference, 0.03),
    "experts marlin FP8": (_marlin_experts_kernel(_quantize_marlin_fp8, "float8_e4m3fn"), 0.03),
    "experts marlin FP4": (_marlin_experts_kernel(_pack_marlin_fp4, "float4_e2m1f"), 0.03),
}
