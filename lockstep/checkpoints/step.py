"""Memory at the widest points of a model's layers for one token, from its configuration.

An engine's first full step decides what it keeps beside weights and KV cache (`fit.profile`). The
sums were read off the allocations of vLLM 0.26.0 at the peak of its profile: starts of 22 families
on one H200, 2026-11-28 (docs/evidence/cuda.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Keys of a configuration for the number of experts in a layer.
EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
# Keys whose part of a layer was not read: streams beside the hidden state, the index of a sparse
# attention, layers that differ in their sizes, other recurrences.
_UNREAD = (
    *("altup_num_inputs", "hidden_size_per_layer_input", "index_topk", "hc_mult"),
    *("block_configs", "linear_attn_config", "mamba_dt_rank", "is_encoder_decoder"),
    *("attn_type_list", "zero_expert_num", "time_step_rank", "attention_hidden_size"),
)
# Two kinds of layers with a state were read.
_RECURRENT = {"linear_attention", "mamba"}
# Classes whose MLP has no gate: one half, and its activation.
_UNGATED = (
    *("bert", "roberta", "xlm-roberta", "gpt2", "gpt_bigcode", "gpt_neox", "starcoder2", "opt"),
    *("phi", "falcon", "nemotron", "nemotron_h"),
)
# Classes with two norms or a branch more in a layer, each with a copy of the hidden state.
_FIVE = (
    *("gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "falcon_h1"),
    *("cohere", "cohere2"),
)
# Classes with norms of queries and keys; the gated ones of vLLM's class Qwen3Next keep them in 32
# bits.
_NORMED = ("qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "gemma3", "gemma3_text")
_GATED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
# `DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES` of 0.26.0; 0.27 and 0.28 add two.
_SECOND = {
    *("DeepseekV2ForCausalLM", "GraniteMoeForCausalLM", "InklingForCausalLM"),
    *("InklingForConditionalGeneration", "LongcatFlashNgramForCausalLM", "Qwen2MoeForCausalLM"),
}


@dataclass(frozen=True, slots=True)
class ForwardStep:
    """Elements of 16 bits at the widest point of a layer, for each token of a step.

    Attributes:
        eager_layer: Elements where nothing is compiled, without the experts' workspace.
        compiled_layer: The same where the layers are compiled.
        workspace: Workspace of the experts, which vLLM keeps from its first use on.
        queries: Outputs of attention, kept for each part that a sequence is split into.
        unpacked_context: Elements of MLA for each token of the context that is unpacked at once.
        beside: Elements of MLA for each token of the step meanwhile, where layers are compiled.
        has_soft_cap: Whether logits are soft-capped, which takes a copy of them.
        second: Whether vLLM 0.25 to 0.28 give the model their second runner in spite of experts.
        patches: Patches of a picture for each of its tokens; 0 where the encoder was not read.
        patch: Elements of a patch that are kept while the language model takes its step.
        sight: Elements of a patch at the widest point of the encoder.
        loaded_elements: Total of elements that are loaded beyond those stored.
    """

    eager_layer: int
    compiled_layer: int
    workspace: int = 0
    queries: int = 0
    unpacked_context: int = 0
    beside: int = 0
    has_soft_cap: bool = False
    second: bool = False
    patches: int = 0
    patch: int = 0
    sight: int = 0
    loaded_elements: int = 0


def step_of(config: Mapping[str, Any], text: Mapping[str, Any]) -> ForwardStep | None:
    """Return the step of a ``config.json`` and of its part for text; None where it is not known."""
    read = _Sizes(text).stated_size
    width = read("hidden_size", "d_model")
    between = read("intermediate_size", "ffn_dim", "n_inner", "moe_intermediate_size")
    if not width or not between or any(text.get(key) for key in _UNREAD):
        return None
    kind = str(text.get("model_type") or config.get("model_type") or "")
    workspace, halves = 0, 2 if kind in _UNGATED else 3
    if read(*EXPERTS):
        experts_per_token = read("num_experts_per_tok", "top_k_experts", "moe_topk", "moe_k")
        expert_width = read("moe_intermediate_size") or between
        into = read("moe_latent_size") or width
        workspace = experts_per_token * (
            max(expert_width, into) + max((halves - 1) * expert_width, into)
        )
        shared_width = read(
            *("shared_expert_intermediate_size", "shared_intermediate_size"),
            "moe_shared_expert_intermediate_size",
        )
        # Gemma 4 has a dense MLP beside its experts.
        dense = between if kind.startswith("gemma") else 0
        between = (
            shared_width
            or read("n_shared_experts", "moe_num_shared_experts") * expert_width
            or dense
        )
        if not experts_per_token:
            return None
    mlp = halves * between
    queries, points = _attention(read, kind, width)
    points.append((mlp + (5 if kind in _FIVE else 3) * width, mlp + queries + 2 * width))
    mixers = _mixers(read, mlp, width)
    if not mixers and _RECURRENT.intersection(text.get("layer_types") or ()):
        return None
    points += mixers
    eager_layer, compiled_layer = (max(sums) for sums in zip(*points, strict=True))
    unpacked_context, beside = _latent(read, width)
    patches, patch, sight = _pictures(config.get("vision_config"))
    return ForwardStep(
        eager_layer,
        compiled_layer,
        workspace,
        read("num_attention_heads") * read("kv_lora_rank") if unpacked_context else queries,
        unpacked_context,
        beside,
        bool(text.get("final_logit_softcapping")),
        bool(_SECOND.intersection(config.get("architectures") or ())),
        patches,
        patch,
        sight,
        _positions(text, read) + _unpacked_weights(config, text, read),
    )


@dataclass(frozen=True)
class _Sizes:
    """Sizes of a configuration."""

    config: Mapping[str, Any]

    def stated_size(self, *keys: str) -> int:
        """Return the first of these values that is a size; 0 where none is."""
        sizes = (self.config.get(key) for key in keys)
        return next((size for size in sizes if type(size) is int and size > 0), 0)


def _attention(read: Any, kind: str, width: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the queries, and the sums of an attention layer: eager, compiled."""
    heads = read("num_attention_heads")
    if read("kv_lora_rank"):
        queries = heads * (read("qk_nope_head_dim") + read("qk_rope_head_dim"))
        out = heads * read("v_head_dim")
        return queries, [(queries + out + 2 * width, 4 * queries + 2 * out + 2 * width)]
    head = read("head_dim") or (width // heads if heads else 0)
    queries, keys = heads * head, (read("num_key_value_heads") or heads) * head
    copies = 9 if kind in _GATED else 2 if kind in _NORMED else 1
    eager = queries + 2 * keys + copies * queries + (keys if copies > 1 else 0)
    return queries, [(eager + 3 * width, 4 * queries + 3 * keys + 2 * width)]


def _latent(read: Any, width: int) -> tuple[int, int]:
    """Return the elements of MLA for an unpacked token of context, and for one of the step."""
    heads, latent, value = (
        read(key) for key in ("num_attention_heads", "kv_lora_rank", "v_head_dim")
    )
    if not latent:
        return 0, 0
    plain, rotary = read("qk_nope_head_dim"), read("qk_rope_head_dim")
    return heads * (plain + value), heads * (plain + rotary + value) + width + latent + rotary


def _mixers(read: Any, mlp: int, width: int) -> list[tuple[int, int]]:
    """Return the sums of a recurrent layer, Mamba-2 or gated DeltaNet: eager, compiled."""
    sums = []
    heads = read("mamba_num_heads", "mamba_n_heads")
    if heads:
        inner = read("mamba_d_ssm") or heads * read("mamba_head_dim", "mamba_d_head")
        groups, state = (
            read("n_groups", "mamba_n_groups") or 1,
            read("ssm_state_size", "mamba_d_state"),
        )
        into = 2 * inner + 2 * groups * state + heads
        # A norm over more than one group is computed in 32 bits.
        eager = into + (5 if groups > 1 else 2) * inner + 3 * width
        sums.append((eager, into + inner + max(into + inner, mlp) + 3 * width))
    if heads := read("linear_num_value_heads"):
        value = heads * read("linear_value_head_dim")
        key = read("linear_num_key_heads") * read("linear_key_head_dim")
        sums.append((4 * key + 7 * value + 3 * width,) * 2)
    return sums


def _pictures(vision: Any) -> tuple[int, int, int]:
    """Return patches per token of Qwen's encoders, and a patch's elements: kept, at the widest."""
    read = _Sizes(vision if isinstance(vision, Mapping) else {}).stated_size
    merged_patches, frames = read("spatial_merge_size") ** 2, read("temporal_patch_size")
    if not (merged_patches and frames):
        return 0, 0, 0
    pixels = 3 * frames * read("patch_size") ** 2
    width, between = read("hidden_size", "embed_dim"), read("intermediate_size")
    outputs = 1 + len(vision.get("deepstack_visual_indexes") or ())
    kept_elements = pixels + outputs * read("out_hidden_size", "hidden_size") // merged_patches
    return merged_patches, kept_elements, pixels + max(2 * between + 5 * width, 12 * width)


def _positions(text: Mapping[str, Any], read: Any) -> int:
    """Return the elements of the tables of rotary positions, one for each kind of layer."""
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    kinds = [part for part in rope.values() if isinstance(part, Mapping)] or [rope]
    if text.get("rope_local_base_freq"):
        kinds.append({})
    heads = read("num_attention_heads") or 1
    head = read("qk_rope_head_dim", "head_dim") or read("hidden_size") // heads
    size = int(head * (text.get("partial_rotary_factor") or 1)) * read("max_position_embeddings")
    return sum(size * _stretch_factor(kind) for kind in kinds)


def _stretch_factor(settings: Mapping[str, Any]) -> int:
    """Return the factor of a table's positions over the model's, for these settings."""
    if settings.get("mrope_section"):
        return 4
    linear = settings.get("rope_type", settings.get("type")) in ("linear", "dynamic")
    return int(settings.get("factor") or 1) if linear else 1


def _unpacked_weights(config: Mapping[str, Any], text: Mapping[str, Any], read: Any) -> int:
    """Return the elements by which quantised weights are larger in memory than in their files.

    Kernels on a Hopper keep zero points of AWQ in 16 bits, not in 4. MXFP4 is padded to rows of
    128.
    """
    quantisation = config.get("quantization_config") or text.get("quantization_config") or {}
    width, between, layers = (
        read(key) for key in ("hidden_size", "intermediate_size", "num_hidden_layers")
    )
    if quantisation.get("quant_method") == "mxfp4":
        padding = -between % 128
        # MXFP4 has 4 bits an element and a scale of 8 for 32 of them.
        return int(layers * read(*EXPERTS) * 3 * padding * width * 17 // 64)
    if (
        quantisation.get("quant_method") == "awq"
        and quantisation.get("zero_point")
        and quantisation.get("group_size")
    ):
        heads, keys = read("num_attention_heads"), read("num_key_value_heads")
        head = read("head_dim") or width // (heads or 1)
        weights = layers * width * (2 * (heads + keys) * head + 3 * between)
        return int(weights // quantisation["group_size"] * 3 // 4)
    return 0
