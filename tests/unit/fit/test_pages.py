"""The fit against what vLLM 0.26.0 itself logged on an H200, 2026-11-22 (docs/evidence/fit.md)."""

from dataclasses import replace
from pathlib import Path

import pytest
from a_card import CARD, KNOWN, dense_model

from lockstep.checkpoints.architecture import Layers
from lockstep.checkpoints.known_checkpoints import GIB, Knowledge
from lockstep.fit.fit import fit
from lockstep.fit.pages import sequence_bytes, state_blocks, with_head
from lockstep.recipes import recipe_file
from lockstep.recipes.sizing import Serving, serving

DOCUMENT = (Path(__file__).parents[3] / "docs/evidence/fit.md").read_text()
MIXTURE = "Qwen/Qwen3.6-35B-A3B"
MODELS = {
    "Qwen3-8B": dense_model("Qwen3-8B", 36, 4096, 15.27),
    "Qwen3-0.6B": dense_model("Qwen3-0.6B", 28, 1024, 1.12),
    MIXTURE: KNOWN.knowledge.checkpoint(MIXTURE),
}
KNOWLEDGE = Knowledge(MODELS, {"h200": CARD})
NGRAM = """--speculative-config '{"method":"ngram","num_speculative_tokens":3}'"""
MTP = """--speculative-config '{"method":"mtp","num_speculative_tokens":2}'"""

CACHING = "--enable-prefix-caching"
# 0.26.0 keeps no earlier prompts of a hybrid model unless it is told to, 0.32.0 does.
HEAD = f"--max-num-seqs 4 --max-num-batched-tokens 32768 --kv-cache-dtype fp8 {MTP}"

# Model, share, context, flags; of vLLM's log weights and KV (GiB), tokens, sequences; GiB beyond
# the share.
STARTS = {
    "dense": ("Qwen3-8B", 0.5, 32768, "", (15.27, 53.12, 386_816, 11.80, 1.82)),
    "dense, drafting by n-grams": (
        *("Qwen3-8B", 0.5, 32768, NGRAM),
        (15.27, 49.40, 359_680, 10.98, 0.9),
    ),
    "mixture": (MIXTURE, 0.8, 65536, CACHING, (65.53, 41.25, 1_945_184, 29.68, 0.90)),
    "mixture, states in 16 bits": (
        *(MIXTURE, 0.8, 65536, f"{CACHING} --mamba-ssm-cache-dtype bfloat16"),
        (65.54, 41.19, 2_048_645, 31.26, 0.88),
    ),
    "mixture, drafting by its head": (
        *(MIXTURE, 0.7, 262144, f"--no-enable-prefix-caching {HEAD}"),
        (67.10, 25.36, 2_239_064, 8.54, -1.95),
    ),
    "small": ("Qwen3-0.6B", 0.3, 32768, "--enforce-eager", (1.12, 40.25, 376_864, 11.50, 1.7)),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_start_on_a_card_is_predicted_within_three_percent(name: str) -> None:
    model, share, context, words, (weights, kv, tokens, sequences, beyond) = STARTS[name]
    flags = f"--gpu-memory-utilization {share} --max-model-len {context} {words}"
    text = f"model: {model}\ncommand: |\n  vllm serve {{model}} {flags}\n"
    recipe = recipe_file.parse(text, Path("x.yaml"))
    settings = serving(recipe, version="0.26.0")
    prediction = fit(recipe, KNOWLEDGE, machine="h200", asked=settings)
    assert prediction.context == context
    assert prediction.terms[0].gib == pytest.approx(weights, rel=0.001)
    room = prediction.room_gib[1]
    assert room == pytest.approx(kv, rel=0.03)
    served_sequences = room / prediction.sequence_gib
    assert served_sequences == pytest.approx(sequences, rel=0.03)
    assert served_sequences * context == pytest.approx(tokens, rel=0.03)
    # In the engine's own KV cache nothing is left but the last block.
    assert kv / prediction.sequence_gib == pytest.approx(sequences, rel=0.001)
    # The profile with a head saw more than was in use when it served.
    assert prediction.need.beside_gib - 2.7 >= beyond - 0.05
    row = f"| {name} | {kv:.2f}, {room:.2f} | {tokens:,}, {served_sequences * context:,.0f} |"
    assert f"{row} {sequences:.2f}, {served_sequences:.2f} |\n" in DOCUMENT


QWEN = MODELS[MIXTURE].architecture
GEMMA = KNOWN.knowledge.checkpoint("RedHatAI/gemma-4-26B-A4B-it-FP8-dynamic").architecture
OSS = KNOWN.knowledge.checkpoint("openai/gpt-oss-120b").architecture
DRAFT = KNOWN.knowledge.checkpoint("z-lab/Qwen3.6-35B-A3B-DFlash").architecture
_L = Layers


@pytest.mark.parametrize(
    ("bytes_", "layers"),
    [
        # DiffKV of MiMo-V2: K of 192, V of 128 elements, and more heads in a window.
        (4_940_513_280, [_L("full", 9, 4, 192, 128), _L("sliding", 39, 8, 192, 128, window=128)]),
        # DeepSeek-V3.2: an index beside a latent.
        (10_266_083_328, [_L("mla", 61, latent=576, index=132)]),
        # Falcon-H1, LFM2: states of Mamba-2, of a convolution.
        (
            6_075_711_488,
            [_L("recurrent", 44, state=786_432, conv=3584, state_bytes=2), _L("full", 44, 2, 128)],
        ),
        (2_149_056_512, [_L("recurrent", 22, conv=2048, kernel=3), _L("full", 8, 8, 64)]),
    ],
)
def test_every_kind_shares_blocks_as_vllms_own_functions_do(bytes_, layers) -> None:
    """`_max_memory_usage_bytes_from_groups` of 0.32.0 on a CPU, with 8192 tokens in flight; it
    knows chunks and small pages better by 0.3 %.
    """
    size = sequence_bytes(tuple(layers), 131072, Serving(batched_tokens=4096))
    assert size == pytest.approx(bytes_, rel=0.003)


# 12 and 13 layers, as gpt-oss-20b with an EAGLE draft: groups of 13, with one empty.
UNEVEN = (replace(OSS.layers[0], count=13), replace(OSS.layers[1], count=12))
DRAFTING = Serving(draft_tokens=3, prefix_caching=False)


@pytest.mark.parametrize(
    ("layers", "context", "settings", "kv", "sequences"),
    [
        # Its two shapes of attention fill pages of one size with 16 and with 32 tokens.
        (GEMMA.layers, 262144, Serving(), 90, 10.8129),
        (UNEVEN, 131072, Serving(), 40, 10.9295),
        # The draft's page is twice the model's, and 10 layers in groups of 8 leave 6 empty.
        ((*QWEN.layers, *DRAFT.layers), 262144, DRAFTING, 41.25, 2.4852),
    ],
)
def test_vllms_own_functions_share_out_a_cache_likewise(layers, context, settings, kv, sequences):
    """`get_kv_cache_groups` and `get_kv_cache_capacity` of 0.26.0, called without a GPU."""
    shared_out = kv * GIB / sequence_bytes(layers, context, settings)
    assert shared_out == pytest.approx(sequences, rel=0.001)


def test_a_head_of_compressed_attention_sees_a_window_alone() -> None:
    """DeepSeek V4's head has no entry for several tokens (`compress_ratio` of a layer behind)."""
    near, far = _L("sliding", 43, window=128, index=585, block=64), _L("mla", 21, index=180)
    assert [group.count for group in with_head((near, far))] == [44, 21]


def test_a_state_for_earlier_prompts_and_one_for_each_drafted_token() -> None:
    """The pages of 2128 tokens: 124 of attention, and 3 groups with 2 + k states each."""
    layers, settings = with_head(QWEN.layers), Serving(kv_dtype="fp8", draft_tokens=2)
    with_state = sequence_bytes(layers, 262144, settings)
    without = sequence_bytes(layers, 262144, replace(settings, prefix_caching=False))
    assert with_state / without == pytest.approx((124 + 12) / (124 + 9))
    assert with_state == 136 * 11 * 2128 * 1024


@pytest.mark.parametrize(
    ("settings", "draft", "room", "blocks"),
    [
        (Serving(draft_tokens=3), DRAFT.layers, 9.90, 302),
        (Serving(kv_dtype="fp8", draft_tokens=3), (), 84.79, 3769),
    ],
)
def test_room_for_states_is_counted_in_the_blocks_that_vllm_made(settings, draft, room, blocks):
    """Its own counts of 2026-11-24; their room is known to 0.01 GiB."""
    layers = (*QWEN.layers, *draft) if draft else with_head(QWEN.layers)
    assert state_blocks(layers, room * GIB, settings) == pytest.approx(blocks, abs=1, rel=0.0005)
    assert state_blocks(layers, room * GIB, replace(settings, eager=True)) is None
    assert state_blocks(GEMMA.layers, room * GIB, settings) is None
