"""The arithmetic against every published figure; docs/evidence/fit.md holds the same table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_card import KNOWN, answer

from lockstep.checkpoints.architecture import Architecture, ArchitectureUnknown, Layers
from lockstep.checkpoints.configuration import from_config
from lockstep.checkpoints.known_checkpoints import GIB, KnownCheckpoint
from lockstep.fit.advice import advice, what_holds
from lockstep.fit.fit import Fit, fit
from lockstep.fit.pages import sequence_bytes
from lockstep.recipes import recipe_file
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, serving

DOCUMENT = (Path(__file__).parents[3] / "docs/evidence/fit.md").read_text()


def weights(model: str) -> float:
    size = KNOWN.knowledge.checkpoint(model).weights_gib()
    assert size is not None
    return size


def room(prediction: Fit) -> tuple[float, float]:
    assert prediction.room_gib is not None
    return prediction.room_gib


def sparks(name: str) -> str:
    holds = what_holds(KNOWN.recipes[name], KNOWN.knowledge)
    return str(holds[0]) if holds else "none"


MISTRAL = "mistralai/Mistral-Small-4-119B-2603-NVFP4"
FORK = "mistral-small-4-119b-nvfp4-vllm-fork"
SGLANG = "mistral-small-4-119b-nvfp4-sglang"
PRODUCTION = "qwen3.6-35b-a3b-prismaquant-dflash-k3"
MINIMAX = Architecture((Layers("full", 62, kv_heads=8, head_dim=128),))
QWEN = KNOWN.knowledge.checkpoint("Qwen/Qwen3.6-35B-A3B").architecture
assert QWEN is not None
FP8 = Serving(kv_dtype="fp8")

# (label in docs/evidence/fit.md, what was published, our figure as the table writes it)
PREDICTIONS = [
    ("Mistral Small 4 weights", "66 GiB", f"{weights(MISTRAL):.1f} GiB"),
    (
        "Mistral Small 4 KV cache at 0.8",
        "about 13 GiB",
        f"{room(answer(FORK))[0]:.1f} to {room(answer(FORK))[1]:.1f} GiB",
    ),
    ("Qwen production, in use", "67 GB", f"{answer(PRODUCTION).host_use_gib:.1f} GiB"),
    (
        "Qwen production, headroom",
        "53 GB",
        f"{121.69 - (answer(PRODUCTION).host_use_gib or 0):.1f} GiB",
    ),
    (
        "Mistral on SGLang, in use at 0.65",
        "82 GB",
        f"{answer(SGLANG, utilization=0.65).host_use_gib:.1f} GiB",
    ),
    (
        "Mistral on SGLang with EAGLE, in use at 0.75",
        "about 94 GB",
        f"{answer(f'{SGLANG}-eagle', utilization=0.75).host_use_gib:.1f} GiB",
    ),
    ("Qwen BF16 weights", "71 GB", f"{weights('Qwen/Qwen3.6-35B-A3B'):.1f} GiB"),
    (
        "Qwen BF16 at 0.90, wanted at start",
        "refused with 18 GB free",
        f"{answer('qwen3.6-35b-a3b-bf16', utilization=0.9).budget_gib:.1f} GiB",
    ),
    ("Qwen FP8 weights", "35 GB", f"{weights('Qwen/Qwen3.6-35B-A3B-FP8'):.1f} GiB"),
    (
        "Qwen AutoRound weights",
        "21 GB",
        f"{weights('Intel/Qwen3.6-35B-A3B-int4-mixed-AutoRound'):.1f} GiB",
    ),
    (
        "Qwen DFlash k=6 at 0.8, KV cache",
        "did not start",
        f"{room(answer('qwen3.6-35b-a3b-prismaquant-dflash-k6'))[0]:.1f} GiB",
    ),
    (
        "GLM-5.1 AWQ INT4 over one Spark",
        "three times over",
        f"{weights('QuantTrio/GLM-5.1-AWQ') / 113.69:.1f} times",
    ),
    ("GLM-5.1 AWQ INT4, Sparks", "4 (a four-Spark cluster)", sparks("glm-5.1-awq-int4")),
    ("GLM-5.1 FP8, Sparks", "4 H200 of 141 GB", sparks("glm-5.1-fp8")),
    ("GLM-5.1 UD-IQ2_M, Sparks", "one M3 Ultra of 512 GB", sparks("glm-5.1-ud-iq2-m")),
    (
        "MiniMax-M2.7 KV cache, 196608 tokens, 2 Sparks",
        "23.25 GiB",
        f"{sequence_bytes(MINIMAX.layers, 196608, Serving(tensor_parallel=2)) / GIB:.2f} GiB",
    ),
    (
        "Qwen3.6 tokens in 6.01 GiB of FP8 KV cache",
        "569,878",
        f"{6.01 * GIB / sequence_bytes(QWEN.layers, 131072, FP8) * 131072:,.0f}",
    ),
]


@pytest.mark.parametrize(("label", "published_text", "predicted_text"), PREDICTIONS)
def test_the_table_in_the_documentation_is_what_the_code_predicts(
    label: str, published_text: str, predicted_text: str
) -> None:
    rows = [line for line in DOCUMENT.splitlines() if line.startswith(f"| {label} |")]
    assert len(rows) == 1, f"docs/evidence/fit.md has {len(rows)} rows for {label!r}"
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert cells[1] == published_text
    assert cells[3] == predicted_text


def test_production_holds_what_the_articles_measured() -> None:
    assert answer(PRODUCTION).host_use_gib == pytest.approx(67, abs=1)
    assert answer(SGLANG, utilization=0.65).host_use_gib == pytest.approx(82, abs=1)
    assert answer(SGLANG, utilization=0.75).host_use_gib == pytest.approx(94, abs=1)
    worse, better = room(answer(FORK))
    assert worse == pytest.approx(13, abs=0.5) and better > worse


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        (PRODUCTION, "fits"),
        (FORK, "fits"),
        ("qwen3.6-35b-a3b-bf16", "fits"),
        ("nemotron-3-super-120b-nvfp4", "fits"),
        ("gpt-oss-120b", "fits"),
        ("glm-5.1-fp8", "does not fit"),
        ("glm-5.1-awq-int4", "does not fit"),
        ("glm-5.1-ud-iq2-m", "does not fit"),
        ("qwen3.8-27b-nvfp4-vllm-dflash2", "unknown"),
        ("deepseek-v4-flash-2x", "unknown"),
    ],
)
def test_verdicts(name: str, verdict: str) -> None:
    assert answer(name).verdict == verdict


def test_what_holds_glm_is_what_article_000_says() -> None:
    holds = {
        name: what_holds(KNOWN.recipes[name], KNOWN.knowledge)
        for name in ("glm-5.1-fp8", "glm-5.1-awq-int4", "glm-5.1-ud-iq2-m")
    }
    assert holds == {
        "glm-5.1-fp8": (8, "pipeline"),
        "glm-5.1-awq-int4": (4, "pipeline"),
        "glm-5.1-ud-iq2-m": (4, "tensor"),
    }


def test_a_share_that_leaves_the_system_nothing_does_not_fit() -> None:
    prediction = answer(PRODUCTION, utilization=0.97)
    assert prediction.verdict == "does not fit"
    assert prediction.reasons[0].startswith(
        "the engine may take 118.9 GiB, and 113.7 GiB is the most"
    )


def test_a_context_that_is_too_long_says_which_would_fit() -> None:
    recipe = KNOWN.recipes["qwen3.6-35b-a3b-nvfp4-nvidia"]
    small = replace(recipe, defaults={**recipe.defaults, "gpu_memory_utilization": 0.26})
    prediction = fit(small, KNOWN.knowledge)
    assert prediction.verdict == "tight"
    tiny = replace(recipe, defaults={**recipe.defaults, "gpu_memory_utilization": 0.2})
    assert fit(tiny, KNOWN.knowledge).verdict == "does not fit"
    assert any("2 Sparks hold it" in line for line in advice(tiny, KNOWN.recipes, KNOWN.knowledge))
    # With what the inventory asks for, more sequences' worth of cache than two of them have.
    settings = replace(serving(tiny), context=400 * 1024 * 1024)
    advice_text = " ".join(advice(tiny, {}, KNOWN.knowledge, settings=settings))
    assert "2 Sparks hold it" not in advice_text


def test_a_fixed_kv_cache_replaces_the_share() -> None:
    prediction = answer("deepseek-v4-flash-2x")
    assert prediction.room_gib == (12.0, 12.0)
    assert prediction.host_use_gib == pytest.approx(5.7 + 155.44 / 2 + 5.4 + 12, abs=0.1)


def test_unknown_figures_are_named_not_guessed() -> None:
    recipe = recipe_file.parse("model: nobody/knows\ncommand: vllm serve {model}", Path("x.yaml"))
    prediction = fit(recipe, KNOWN.knowledge)
    assert (prediction.verdict, prediction.terms, prediction.room_gib) == ("unknown", (), None)
    assert prediction.reasons == (
        "the size of nobody/knows is not known",
        "the shapes of nobody/knows, and so its KV cache, are not known",
        "what the profile of vLLM holds of nobody/knows is not known: 0.5 to 18.4 GiB are counted",
        # vLLM's own share, 0.92.
        "117.6 GiB must be available when it starts, 4 GiB of them for the memory minimum, and "
        "112.7 GiB are at rest",
    )


def test_a_context_that_nobody_states_is_named() -> None:
    sizes = "model_params: 8B, quant_bits: 16, num_layers: 32, num_kv_heads: 8, head_dim: 128"
    command = "command: vllm serve {model} --gpu-memory-utilization 0.5"
    text = f"model: a/b\n{command}\nmetadata: {{{sizes}}}"
    reason = fit(recipe_file.parse(text, Path("x.yaml")), KNOWN.knowledge).reasons[0]
    assert reason == "neither recipe (max_model_len) nor model says how long a context is"


def test_sparkrun_metadata_stands_in_for_the_catalogue() -> None:
    recipe = recipe_file.parse(
        "model: nobody/knows\ncommand: vllm serve {model} --max-model-len 32768"
        " --gpu-memory-utilization 0.5\n"
        "metadata: {model_params: 8B, quant_bits: 16, num_layers: 32, num_kv_heads: 8,"
        " head_dim: 128}",
        Path("x.yaml"),
    )
    prediction = fit(recipe, KNOWN.knowledge)
    assert prediction.verdict == "fits"
    assert prediction.terms[0].gib == pytest.approx(16e9 / GIB)
    assert prediction.sequence_gib == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("stored_type", "words", "loaded_gib"),
    [
        ("float32", "", 1.06),  # vLLM 0.26 on an H100, 2026-11-25
        ("float32", "--dtype float32", 2.12),
        ("bfloat16", "", 2.12),
    ],
)
def test_weights_stored_in_32_bits_are_loaded_in_16(
    stored_type: str, words: str, loaded_gib: float
) -> None:
    size = "{value: 2.2714, source: s, date: 2026-11-25, kind: quoted}"
    recipe = recipe_file.parse(
        f"model: BAAI/bge-m3\ncommand: vllm serve {{model}} --runner pooling {words}\n"
        f"lockstep: {{checkpoint: {{quantisation: {stored_type}, weights_gb: {size}}}}}",
        Path("x.yaml"),
    )
    assert fit(recipe, KNOWN.knowledge).terms[0].gib == pytest.approx(loaded_gib, rel=0.005)


@pytest.mark.parametrize(
    ("model", "per_token", "state"),
    [
        ("Qwen/Qwen3.6-35B-A3B", 20480, 64389120),
        ("z-lab/Qwen3.6-35B-A3B-DFlash", 32768, 0),
        (MISTRAL, 23040, 0),
        ("zai-org/GLM-5.1-FP8", 89856 + 78 * 132, 0),
        ("RedHatAI/gemma-4-26B-A4B-it-FP8-dynamic", 20480, 0),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 8192, 167772160 + 40 * 10240 * 3 * 2),
        ("openai/gpt-oss-120b", 36864, 0),
    ],
)
def test_bytes_per_token_and_state(model: str, per_token: float, state: float) -> None:
    shapes = KNOWN.knowledge.checkpoint(model).architecture
    assert shapes is not None
    assert shapes.kv_bytes_per_token() == per_token
    packed_bytes = 78 * (656 + 132) if "GLM" in model else per_token / 2
    assert shapes.kv_bytes_per_token("fp8") == packed_bytes
    assert sum(group.bytes_for(0, 0) for group in shapes.layers) == state


def test_a_sliding_window_stops_growing() -> None:
    shapes = KNOWN.knowledge.checkpoint("RedHatAI/gemma-4-26B-A4B-it-FP8-dynamic").architecture
    assert shapes is not None
    full = sum(group.bytes_for(4096, 2) for group in shapes.layers)
    full -= 4096 * shapes.kv_bytes_per_token()
    assert full == 209715200


CONFIGS: dict[str, Any] = {
    "grouped-query attention": (
        {"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8}
        | {"hidden_size": 4096, "max_position_embeddings": 40960},
        ((("full", 36, 8, 128),), 40960),
    ),
    "hybrid with an interval": (
        {
            "text_config": {
                "num_hidden_layers": 40,
                "full_attention_interval": 4,
                "num_key_value_heads": 2,
                "head_dim": 256,
                "linear_num_value_heads": 32,
                "linear_value_head_dim": 128,
                "linear_key_head_dim": 128,
                "linear_num_key_heads": 16,
                "linear_conv_kernel_dim": 4,
                "mamba_ssm_dtype": "float32",
                "num_experts": 256,
            }
        },
        ((("recurrent", 30, 0, 0), ("full", 10, 2, 256)), None),
    ),
    "sliding and full": (
        {
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
            "num_key_value_heads": 8,
            "num_global_key_value_heads": 2,
            "head_dim": 256,
            "global_head_dim": 512,
            "sliding_window": 1024,
        },
        ((("sliding", 5, 8, 256), ("full", 1, 2, 512)), None),
    ),
    "MLA": (
        {"num_hidden_layers": 36, "kv_lora_rank": 256, "qk_rope_head_dim": 64},
        ((("mla", 36, 0, 0),), None),
    ),
    "a Mamba pattern": (
        {
            "num_hidden_layers": 5,
            "hybrid_override_pattern": "MEM*E",
            "num_key_value_heads": 2,
            "head_dim": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "ssm_state_size": 128,
            "n_groups": 8,
            "conv_kernel": 4,
        },
        ((("recurrent", 2, 0, 0), ("full", 1, 2, 128)), None),
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_of_each_kind(name: str) -> None:
    config, (groups, context) = CONFIGS[name]
    shapes = from_config(config, "config.json")
    assert tuple((g.kind, g.count, g.kv_heads, g.head_dim) for g in shapes.layers) == groups
    assert shapes.context == context
    assert shapes.dense == (name != "hybrid with an interval")


def test_a_hybrid_configuration_gives_what_the_catalogue_says() -> None:
    assert QWEN is not None
    shapes = from_config(CONFIGS["hybrid with an interval"][0], "config.json")
    assert sorted(shapes.layers, key=str) == sorted(QWEN.layers, key=str)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_hidden_layers": 2},
        {"num_hidden_layers": "2"},
        {"text_config": [1]},
        {"num_hidden_layers": 1, "layer_types": ["strange"]},
        {"num_hidden_layers": 1, "num_attention_heads": 64, "hidden_size": 8},
    ],
)
def test_a_configuration_without_its_sizes_is_unknown(config: dict[str, object]) -> None:
    with pytest.raises(ArchitectureUnknown):
        from_config(config, "config.json")


def test_heads_are_split_and_a_latent_is_not() -> None:
    assert MINIMAX.kv_bytes_per_token(tensor_parallel=16) == 62 * 1 * 128 * 2 * 2
    latent = KNOWN.knowledge.checkpoint(MISTRAL).architecture
    assert latent is not None
    assert latent.kv_bytes_per_token(tensor_parallel=4) == latent.kv_bytes_per_token()


def test_on_a_spark_of_64_gb_a_recipe_hears_with_what_it_runs_there() -> None:
    def advice_text(name: str) -> str:
        return " ".join(advice(KNOWN.recipes[name], {}, KNOWN.knowledge, "dgx-spark-64"))

    assert "run with gpu_memory_utilization 0.75." in advice_text(
        "qwen3.6-35b-a3b-prismaquant-mtp-n3"
    )
    assert "0.75 and a context of 131072 tokens." in advice_text("qwen3.6-35b-a3b-fp8")
    assert "Here it may run" not in advice_text(FORK)
    # It takes more beside its share than others, so 0.75 is not at rest there.
    gemma_text = advice_text("gemma4-26b-a4b-fp8")
    assert "run with gpu_memory_utilization 0.73." in gemma_text and "Eight" not in gemma_text
    # SGLang takes nothing beside its share, and a lower one would leave it less.
    assert "2 Sparks hold it, tensor parallel, with gpu_memory_utilization 0.75." in advice_text(
        SGLANG
    )


def test_no_advice_keeps_a_share_that_starts_nowhere() -> None:
    """On a Spark of 64 GB `utilization-high` names each share above 0.75."""

    def advice_text(recipe: Recipe) -> str:
        return " ".join(advice(recipe, {}, KNOWN.knowledge, "dgx-spark-64"))

    assert "2 Sparks hold it, tensor parallel, with gpu_memory_utilization 0.75." in advice_text(
        KNOWN.recipes["qwen3.6-35b-a3b-bf16"]
    )
    high = KNOWN.recipes["qwen3.6-35b-a3b-prismaquant-dflash-k6"]
    lower = replace(high, defaults={**high.defaults, "gpu_memory_utilization": 0.75})
    assert "hold it with a context of" in advice_text(lower)
    assert "hold it with a context of" not in advice_text(high)


@pytest.mark.parametrize("machine", ["dgx-spark", "dgx-spark-64"])
@pytest.mark.parametrize("minimums", [(12.0, None), (None, 20.0)])
def test_what_is_advised_leaves_the_minimum_of_the_inventory(
    machine: str, minimums: tuple[float | None, float | None]
) -> None:
    knowledge, advice_count = KNOWN.knowledge, 0
    for recipe in KNOWN.recipes.values():
        settings = serving(recipe)
        advice_text = " ".join(advice(recipe, {}, knowledge, machine, settings, minimums))
        usual = " ".join(advice(recipe, {}, knowledge, machine, settings))
        shares = re.findall(r"gpu_memory_utilization ([\d.]+)", advice_text)
        # One truth: less than on a host that keeps the usual minimum.
        assert not set(shares) & set(re.findall(r"gpu_memory_utilization ([\d.]+)", usual))
        match = re.search(
            r"Here.*? ([\d.]+?)(?: and a context of (\d+) tokens)?\.(?: |$)", advice_text
        )
        if not match:
            continue
        advice_count += 1
        less = replace(
            settings, utilization=float(match[1]), context=int(match[2] or settings.context)
        )
        assert fit(recipe, knowledge, machine=machine, asked=less, minimums=minimums).verdict != (
            "does not fit"
        )
    assert advice_count or machine == "dgx-spark"


def test_what_the_gate_admits_on_no_spark_at_rest_does_not_fit() -> None:
    recipe = KNOWN.recipes["qwen3.6-35b-a3b-nvfp4-nvidia"]
    predictions = {
        share: fit(recipe, KNOWN.knowledge, asked=replace(serving(recipe), utilization=share))
        for share in (0.85, 0.88)
    }
    assert predictions[0.85].verdict == "fits" and predictions[0.88].verdict == "does not fit"
    assert "and 112.7 GiB are at rest" in predictions[0.88].reasons[0]


@pytest.mark.parametrize(
    ("context", "verdict"), [(4096, "fits"), (1_100_000, "tight"), (1_900_000, "does not fit")]
)
def test_mla_in_a_gguf_file_has_the_range_that_builds_of_llama_cpp_differ_by(
    context: int, verdict: str
) -> None:
    text = "model: org/m:Q4_K_M\ncontainer: org/image:1\nruntime: llama-cpp\n"
    text += f"command: |\n  llama-server --model {{model}} --ctx-size {context}\n"
    size = replace(KNOWN.knowledge.hardware["dgx-spark"].memory_total_gib, value=20, unit="GB")
    shapes = Architecture((Layers("mla", 47, latent=576),), context=2**21)
    knowledge = replace(
        KNOWN.knowledge,
        checkpoints={"org/m:Q4_K_M": KnownCheckpoint("x", weights_gb=size, architecture=shapes)},
    )
    prediction = fit(recipe_file.parse(text, Path("x.yaml")), knowledge)
    least_gib = context * 47 * 576 * 2 / 2**30
    assert prediction.sequence_gib == pytest.approx(least_gib)
    assert prediction.verdict == verdict
    assert any(
        reason.endswith(f"up to {2 * least_gib:.1f} GiB a sequence")
        for reason in prediction.reasons
    )
    assert prediction.room_gib and prediction.largest_context
    assert prediction.largest_context * 2 * least_gib / context <= prediction.room_gib[0]
