"""The arithmetic against every published figure; docs/evidence/fit.md holds the same table."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from a_card import KNOWN, answer

from lockstep.checkpoints.architecture import Architecture, Layers
from lockstep.checkpoints.known_checkpoints import GIB, KnownCheckpoint
from lockstep.fit.advice import advice, what_holds
from lockstep.fit.fit import fit
from lockstep.fit.pages import sequence_bytes
from lockstep.recipes import recipe_file
from lockstep.recipes.sizing import Serving, serving

DOCUMENT = (Path(__file__).parents[3] / "docs/evidence/fit.md").read_text()


def checkpoint(model: str) -> KnownCheckpoint:
    return KNOWN.knowledge.checkpoint(model)


def weights(model: str) -> str:
    return f"{checkpoint(model).weights_gib():.1f} GiB"


def in_use(name: str, **settings: float) -> float:
    return answer(name, **settings).host_use_gib


def sparks(name: str) -> str:
    return str(what_holds(KNOWN.recipes[name], KNOWN.knowledge)[0])


MISTRAL = "mistralai/Mistral-Small-4-119B-2603-NVFP4"
FORK = "mistral-small-4-119b-nvfp4-vllm-fork"
SGLANG = "mistral-small-4-119b-nvfp4-sglang"
EAGLE = f"{SGLANG}-eagle"
PRODUCTION = "qwen3.6-35b-a3b-prismaquant-dflash-k3"
K_6 = "qwen3.6-35b-a3b-prismaquant-dflash-k6"
BF16 = "qwen3.6-35b-a3b-bf16"
QWEN = "Qwen/Qwen3.6-35B-A3B"
MINIMAX = Architecture((Layers("full", 62, kv_heads=8, head_dim=128),))
MINIMAX_BYTES = sequence_bytes(MINIMAX.layers, 196608, Serving(tensor_parallel=2))
QWEN_LAYERS = checkpoint(QWEN).architecture.layers
QWEN_BYTES = sequence_bytes(QWEN_LAYERS, 131072, Serving(kv_dtype="fp8"))
GLM = checkpoint("QuantTrio/GLM-5.1-AWQ").weights_gib()
ROOM = answer(FORK).room_gib

# Label of the row, and the figure that it has to predict.
PREDICTIONS = {
    "Mistral Small 4 weights": weights(MISTRAL),
    "Mistral Small 4 KV cache at 0.8": f"{ROOM[0]:.1f} to {ROOM[1]:.1f} GiB",
    "Qwen production, in use": f"{in_use(PRODUCTION):.1f} GiB",
    "Qwen production, headroom": f"{121.69 - in_use(PRODUCTION):.1f} GiB",
    "Mistral on SGLang, in use at 0.65": f"{in_use(SGLANG, utilization=0.65):.1f} GiB",
    "Mistral on SGLang with EAGLE, in use at 0.75": f"{in_use(EAGLE, utilization=0.75):.1f} GiB",
    "Qwen BF16 weights": weights(QWEN),
    "Qwen BF16 at 0.90, wanted at start": f"{answer(BF16, utilization=0.9).budget_gib:.1f} GiB",
    "Qwen FP8 weights": weights(f"{QWEN}-FP8"),
    "Qwen AutoRound weights": weights("Intel/Qwen3.6-35B-A3B-int4-mixed-AutoRound"),
    "Qwen DFlash k=6 at 0.8, KV cache": f"{answer(K_6).room_gib[0]:.1f} GiB",
    "GLM-5.1 AWQ INT4 over one Spark": f"{GLM / 113.69:.1f} times",
    "GLM-5.1 AWQ INT4, Sparks": sparks("glm-5.1-awq-int4"),
    "GLM-5.1 FP8, Sparks": sparks("glm-5.1-fp8"),
    "GLM-5.1 UD-IQ2_M, Sparks": sparks("glm-5.1-ud-iq2-m"),
    "MiniMax-M2.7 KV cache, 196608 tokens, 2 Sparks": f"{MINIMAX_BYTES / GIB:.2f} GiB",
    "Qwen3.6 tokens in 6.01 GiB of FP8 KV cache": f"{6.01 * GIB / QWEN_BYTES * 131072:,.0f}",
}


@pytest.mark.parametrize("label", PREDICTIONS)
def test_the_table_in_the_documentation_is_what_the_code_predicts(label: str) -> None:
    rows = [line for line in DOCUMENT.splitlines() if line.startswith(f"| {label} |")]
    assert len(rows) == 1, f"docs/evidence/fit.md has {len(rows)} rows for {label!r}"
    assert rows[0].split(" | ")[3] == PREDICTIONS[label]


def test_a_share_that_leaves_the_system_nothing_does_not_fit() -> None:
    prediction = answer(PRODUCTION, utilization=0.97)
    assert prediction.verdict == "does not fit"
    assert prediction.reasons[0].startswith(
        "the engine may take 118.9 GiB, and 113.7 GiB is the most"
    )
    # The gate admits it on no Spark at rest.
    recipe = KNOWN.recipes["qwen3.6-35b-a3b-nvfp4-nvidia"]
    less, more = (
        fit(recipe, KNOWN.knowledge, asked=replace(serving(recipe), utilization=share))
        for share in (0.85, 0.88)
    )
    assert (less.verdict, more.verdict) == ("fits", "does not fit")
    assert "and 112.7 GiB are at rest" in more.reasons[0]


def test_a_context_that_is_too_long_says_which_would_fit() -> None:
    recipe = KNOWN.recipes["qwen3.6-35b-a3b-nvfp4-nvidia"]
    small, tiny = (
        replace(recipe, defaults={**recipe.defaults, "gpu_memory_utilization": share})
        for share in (0.26, 0.2)
    )
    assert fit(small, KNOWN.knowledge).verdict == "tight"
    assert fit(tiny, KNOWN.knowledge).verdict == "does not fit"
    assert any("2 Sparks hold it" in line for line in advice(tiny, KNOWN.recipes, KNOWN.knowledge))
    # With what the inventory asks for, more sequences' worth of cache than two of them have.
    settings = replace(serving(tiny), context=400 * 1024 * 1024)
    advice_text = " ".join(advice(tiny, {}, KNOWN.knowledge, settings=settings))
    assert "2 Sparks hold it" not in advice_text


def test_unknown_figures_are_named_not_guessed() -> None:
    recipe = recipe_file.parse("model: nobody/knows\ncommand: vllm serve {model}", Path("x.yaml"))
    prediction = fit(recipe, KNOWN.knowledge)
    assert (prediction.verdict, prediction.terms, prediction.room_gib) == ("unknown", (), None)
    assert prediction.reasons[:2] == (
        "the size of nobody/knows is not known",
        "the shapes of nobody/knows, and so its KV cache, are not known",
    )
    # vLLM's own share, 0.92.
    assert prediction.reasons[3].startswith("117.6 GiB must be available when it starts, 4 GiB of")


def test_sparkrun_metadata_stands_in_for_the_catalogue() -> None:
    text = (
        "model: a/b\ncommand: vllm serve {model} --gpu-memory-utilization 0.5%s\nmetadata:"
        " {model_params: 8B, quant_bits: 16, num_layers: 32, num_kv_heads: 8, head_dim: 128}"
    )
    recipe = recipe_file.parse(text % " --max-model-len 32768", Path("x.yaml"))
    prediction = fit(recipe, KNOWN.knowledge)
    assert prediction.verdict == "fits"
    assert prediction.terms[0].gib == pytest.approx(16e9 / GIB)
    assert prediction.sequence_gib == pytest.approx(4.0)
    # It does not say how long a context is.
    reason = fit(recipe_file.parse(text % "", Path("x.yaml")), KNOWN.knowledge).reasons[0]
    assert reason == "neither recipe (max_model_len) nor model says how long a context is"


@pytest.mark.parametrize(
    ("stored_type", "words", "loaded_gib"),
    [
        ("float32", "", 1.06),  # vLLM 0.26 on an H100, 2026-11-25
        ("float32", "--dtype float32", 2.12),
        ("bfloat16", "", 2.12),
    ],
)
def test_weights_stored_in_32_bits_are_loaded_in_16(stored_type, words, loaded_gib) -> None:
    size = "{value: 2.2714, source: s, date: 2026-11-25, kind: quoted}"
    recipe = recipe_file.parse(
        f"model: BAAI/bge-m3\ncommand: vllm serve {{model}} --runner pooling {words}\n"
        f"lockstep: {{checkpoint: {{quantisation: {stored_type}, weights_gb: {size}}}}}",
        Path("x.yaml"),
    )
    assert fit(recipe, KNOWN.knowledge).terms[0].gib == pytest.approx(loaded_gib, rel=0.005)


def test_a_latent_is_packed_in_fp8_and_a_state_counts_once() -> None:
    shapes = checkpoint("zai-org/GLM-5.1-FP8").architecture
    assert shapes.kv_bytes_per_token() == 89856 + 78 * 132
    assert shapes.kv_bytes_per_token("fp8") == 78 * (656 + 132)
    nemotron = checkpoint("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4").architecture
    states = sum(group.bytes_for(0, 0) for group in nemotron.layers)
    assert states == 167772160 + 40 * 10240 * 3 * 2


def small_spark_advice(name: str, **defaults: float) -> str:
    recipe = KNOWN.recipes[name]
    recipe = replace(recipe, defaults={**recipe.defaults, **defaults})
    return " ".join(advice(recipe, {}, KNOWN.knowledge, "dgx-spark-64"))


@pytest.mark.parametrize(
    ("name", "advice_text"),
    [
        ("qwen3.6-35b-a3b-fp8", "0.75 and a context of 131072 tokens."),
        # It takes more beside its share than others, so 0.75 is not at rest there.
        ("gemma4-26b-a4b-fp8", "run with gpu_memory_utilization 0.73."),
        (BF16, "2 Sparks hold it, tensor parallel, with gpu_memory_utilization 0.75."),
    ],
)
def test_on_a_spark_of_64_gb_a_recipe_hears_with_what_it_runs_there(name, advice_text) -> None:
    assert advice_text in small_spark_advice(name)


def test_no_advice_keeps_a_share_that_starts_nowhere() -> None:
    """On a Spark of 64 GB `utilization-high` names each share above 0.75."""
    assert "Here it may run" not in small_spark_advice(FORK)
    assert "Eight" not in small_spark_advice("gemma4-26b-a4b-fp8")
    assert "hold it with a context of" in small_spark_advice(K_6, gpu_memory_utilization=0.75)
    assert "hold it with a context of" not in small_spark_advice(K_6)


@pytest.mark.parametrize("machine", ["dgx-spark", "dgx-spark-64"])
@pytest.mark.parametrize("minimums", [(12.0, None), (None, 20.0)])
def test_what_is_advised_leaves_the_minimum_of_the_inventory(machine, minimums) -> None:
    knowledge, advice_count = KNOWN.knowledge, 0
    for recipe in KNOWN.recipes.values():
        settings = serving(recipe)
        advice_text = " ".join(advice(recipe, {}, knowledge, machine, settings, minimums))
        usual = " ".join(advice(recipe, {}, knowledge, machine, settings))
        shares = re.findall(r"gpu_memory_utilization ([\d.]+)", advice_text)
        # One truth: less than on a host that keeps the usual minimum.
        assert not set(shares) & set(re.findall(r"gpu_memory_utilization ([\d.]+)", usual))
        pattern = r"Here.*? ([\d.]+?)(?: and a context of (\d+) tokens)?\.(?: |$)"
        if not (match := re.search(pattern, advice_text)):
            continue
        advice_count += 1
        context = int(match[2] or settings.context)
        less = replace(settings, utilization=float(match[1]), context=context)
        prediction = fit(recipe, knowledge, machine=machine, asked=less, minimums=minimums)
        assert prediction.verdict != "does not fit"
    assert advice_count or machine == "dgx-spark"


@pytest.mark.parametrize(
    ("context", "verdict"), [(4096, "fits"), (1_100_000, "tight"), (1_900_000, "does not fit")]
)
def test_mla_in_a_gguf_file_has_the_range_that_builds_of_llama_cpp_differ_by(context, verdict):
    text = "model: org/m:Q4_K_M\ncontainer: org/image:1\nruntime: llama-cpp\n"
    text += f"command: |\n  llama-server --model {{model}} --ctx-size {context}\n"
    size = replace(KNOWN.knowledge.hardware["dgx-spark"].memory_total_gib, value=20, unit="GB")
    shapes = Architecture((Layers("mla", 47, latent=576),), context=2**21)
    model = KnownCheckpoint("x", weights_gb=size, architecture=shapes)
    knowledge = replace(KNOWN.knowledge, checkpoints={"org/m:Q4_K_M": model})
    prediction = fit(recipe_file.parse(text, Path("x.yaml")), knowledge)
    least_gib = context * 47 * 576 * 2 / 2**30
    assert prediction.sequence_gib == pytest.approx(least_gib)
    assert prediction.verdict == verdict
    assert f"up to {2 * least_gib:.1f} GiB a sequence" in " ".join(prediction.reasons)
    assert prediction.largest_context * 2 * least_gib / context <= prediction.room_gib[0]
