"""Keys of a configuration whose names tell of the cache of its layers.

An unknown key may change the KV cache as the known ones do. So the words of its name decide. Keys
whose names tell of a cache, but which change nothing, are listed. They were seen in the default
configurations of transformers 5.24.0 and in published ones, 2026-11.
"""

from __future__ import annotations

import re

#: Ways to place layers, which have no effect beside a list of `layer_types`.
PLACING = frozenset({
    "_sliding_window_pattern", "attention_chunk_size", "attn_layer_indices",
    "attn_layer_offset", "attn_layer_period", "compress_ratios", "conv_L_cache",
    "full_attention_interval", "full_attn_idxs", "global_attn_every_n_layers",
    "hybrid_layer_ids", "hybrid_layer_pattern", "layer_group_size", "layer_switch",
    "linear_attn_config", "local_layer_ids", "max_window_layers", "no_rope_layer_interval",
    "no_rope_layers", "num_hidden_layers", "prefix_dense_sliding_window_pattern",
    "sliding_window", "sliding_window_pattern",
})  # fmt: skip
# Words of a name that tell of a cache.
_CACHED = re.compile(
    r"(?:^|_)(?:\w*window\w*|sliding|swa|chunk\w*|\w*compress\w*|k?v|kvs?|cache\w*|latent|index\w*"
    r"|indices|patterns?|loops?|mamba\w*|ssm|conv\w*|linear|recurrent|rnn|lru|states?|hybrid|kda"
    r"|delta|retention|memory|shared?|sharing|locals?|globals?|query|sparse|nope|engram|ngram|ple"
    r"|layers?|attn|block_configs?|block_types?|value|values|head|heads|key|keys|retain\w*|evict\w*|ring|attention|attentions|groups?|settings?)(?:_|$)",
    re.IGNORECASE,
)
# Words of a name that tell of something other than a cache.
_OTHER = re.compile(
    r"(?:^|_)(?:experts?|mlp|moe|rope|rotary|norms?|dropout|pdrop|bias|vocab|loss|init\w*|eps|nextn"
    r"|mtp|routers?|vision|visual|image|video|audio|token|act|multipliers?|dense|rank|theta|label"
    r"|softcap\w*|std|scaling|layerdrop|layernorm|pooling|pooler|gate|sink|sinks|hash)(?:_|$)"
)
_HARMLESS = frozenset({
    "activation_sparsity_pattern", "add_cross_attention", "attention_head_type",
    "attention_hidden_size", "attention_k_eq_v", "attention_softmax_in_fp32",
    "attention_value_scale", "attn_implementation", "attn_scale", "attn_temperature_tuning",
    "cache_implementation", "chunk_size", "chunk_size_feed_forward", "clip_qkv", "conv_dim_out",
    "decoder_sparse_step", "deterministic_flash_attn", "draft_vocab_size",
    "eagle_aux_hidden_state_layer_ids", "first_k_dense_replace", "full_attn_alpha_factor",
    "full_attn_beta_factor", "heads_per_ngram", "hidden_mamba_act",
    "hidden_size_per_layer_input", "index_block_size", "index_kpool_always_select_tail",
    "index_kpool_compress", "index_local_blocks", "index_n_heads",
    "index_share_for_mtp_iteration", "index_skip_topk_offset", "index_topk",
    "index_topk_blocks", "indexer_budget", "indexer_n_heads", "interleave_moe_layer_step",
    "kda_lower_bound", "kda_safe_gate", "key_multiplier", "kv_bits", "layer_types",
    "linear_a_log_max", "linear_a_log_min", "linear_allow_neg_eigval",
    "linear_attn_alpha_factor", "linear_attn_beta_factor", "linear_dt_max", "linear_dt_min",
    "linear_lower_bound", "lm_head_multiplier", "logits_to_keep", "mamba_chunk_size",
    "mamba_d_ssm", "mamba_dt_rank", "mamba_hidden_act", "mask_token_id", "max_window_layers",
    "mla_use_nope", "mlp_only_layers", "n_group", "n_head", "n_layer",
    "n_layers_per_attn_res_block", "n_shared_head", "ngram_size", "ngram_vocab_size_base",
    "no_kda_lora", "num_attention_heads", "num_attention_heads_padded",
    "num_attention_heads_per_layer", "num_aux_hidden_states", "num_code_groups",
    "num_expert_group", "num_hidden_layers", "num_layers_per_stack", "num_ln_in_parallel_attn",
    "num_logits_to_keep", "num_mem_blocks", "num_query_groups", "num_sliding_attention_heads",
    "num_target_layers", "number_of_conv_states", "o_groups", "order_of_interleaved_layers",
    "output_attentions", "output_hidden_states", "parallel_attn", "ple_conv_kernel_size",
    "ple_embed_dim", "qk_head_dim", "query_pre_attn_scalar", "reorder_and_upcast_attn",
    "scale_attention_softmax_in_fp32", "scale_attn_by_inverse_layer_idx", "scale_attn_weights",
    "share_expert_dim", "shared_intermediate_size", "sparse_block_size", "split_ngram_parts",
    "ssm_multipliers", "swa_num_attention_heads", "target_layer_count", "target_layer_ids",
    "topk_group", "use_attention_value_norm", "use_bidirectional_attention", "use_cache",
    "use_embedding_sharing", "use_global_scale", "use_kv_norm", "use_linear_silu",
    "use_mamba_kernels", "use_qkv_bias", "vocab_size_per_layer_input", "zero_centered",
})  # fmt: skip


def may_change_cache(key: str) -> bool:
    """Tell whether an unknown key may change what a layer keeps, by its name."""
    return bool(_CACHED.search(key) and not _OTHER.search(key) and key not in _HARMLESS)
