"""Predictions for engines on a GPU stand in docs/evidence/cuda.md beside what the engines said."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tools import write_files

import benchmarks.cuda
from benchmarks.cuda import fit
from benchmarks.cuda.card import Card
from benchmarks.cuda.cases import CASES, MACHINE, command, predicted_fit, recipe_of
from lockstep.checkpoints.configuration import from_config
from lockstep.checkpoints.known_checkpoints import Knowledge, KnownCheckpoint
from lockstep.fit import catalogue
from lockstep.fit.fit import OVERHEAD
from lockstep.fit.fit import fit as fit_of
from lockstep.recipes.sizing import Serving, read_back

DOCUMENT = (Path(__file__).parents[3] / "docs/evidence/cuda.md").read_text()
SHAPES = json.loads(Path(benchmarks.cuda.__file__).with_name("shapes.json").read_text())
CARD = Card("NVIDIA H200", "580.159.04", "9.0", 139.8, has_unified_memory=False)


DENSE = {
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}


# vLLM 0.26.0 on that card, 2026-11-23: GiB of weights and of KV cache, sequences.
SAID = {
    "qwen3-8b-longest": (15.27, 4.19, 1.03),
    "qwen3.6-bf16-long": (65.53, 55.23, 10.75),
    "qwen3.6-bf16-dflash3": (66.54, 36.21, 7.68),
    "qwen3.6-fp8-mtp3": (35.5, 84.79, 50.93),
    "qwen3.6-nvfp4-mtp2": (23.45, 37.41, 22.47),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_predicted_of_a_start_stands_beside_what_it_said(tmp_path, name: str) -> None:
    folder = tmp_path / CASES[name].checkpoint
    folder.mkdir()
    # The shapes of the others stand in the catalogue.
    (folder / "config.json").write_text(json.dumps(DENSE))
    case, prediction = fit.prediction(CASES[name], CARD, tmp_path, "0.26.0")
    assert prediction.room_gib and prediction.sequence_gib and prediction.context
    serving = read_back(recipe_of(case), command(case, tmp_path)[0])
    gib_by_term = {term.name: term.gib for term in prediction.terms}
    overhead, weights = gib_by_term.pop(OVERHEAD), sum(gib_by_term.values())
    room = prediction.room_gib[1]
    cells = (
        *(name, f"{serving.sequences or 1024}", f"{serving.batched_tokens or 8192}"),
        *(f"{prediction.context}", f"{weights:.2f}", f"{overhead:.2f}", f"{room:.2f}"),
        *(f"{prediction.sequence_gib:.3f}", f"{room / prediction.sequence_gib:.2f}"),
    )
    assert f"| {' | '.join(cells)} |\n" in DOCUMENT
    own, cache_gib, sequences = SAID[name]
    ratios = weights / own, room / cache_gib, prediction.sequence_gib / (cache_gib / sequences)
    overhead_gib = prediction.budget_gib - own - cache_gib
    ends = (f"{own:.2f}", f"{overhead_gib:.2f}", f"{cache_gib:.2f}", f"{sequences:.2f}")
    row_text = " | ".join([name, *ends, *(f"{ratio:.3f}" for ratio in ratios)])
    assert f"| {row_text} |\n" in DOCUMENT, row_text


# One H100, 2026-11-25.
H100 = Card("NVIDIA H100 80GB HBM3", "580.159.04", "9.0", 79.1787109375, has_unified_memory=False)
NGRAM = json.dumps({"method": "ngram", "num_speculative_tokens": 3})
# Row of starts on these cards, 2026-11-24 and 25: what was changed in the case; the same figures.
LATER = {
    "Gemma 4, FP8": ("gemma4-fp8", {"gpu_memory_utilization": 0.32}, (24.68, 18.35, 6.30)),
    "Qwen3-8B with EAGLE-3": ("qwen3-8b-eagle3", {}, (15.77, 52.03, 11.25)),
    "Qwen3.6, FP8, MTP of 3 tokens": (
        *("qwen3.6-fp8-mtp3", {"gpu_memory_utilization": 0.36}, (35.5, 9.36, 5.61)),
    ),
    "Qwen3.6 with DFlash, 64 sequences": (
        *("qwen3.6-bf16-dflash3", {"gpu_memory_utilization": 0.58, "max_num_seqs": 64}),
        (66.54, 9.97, 2.11),
    ),
    "Qwen3-8B with n-grams of 3, S = 64": (
        *("qwen3-8b", ("--speculative-config", NGRAM, "--max-num-seqs", "64")),
        (15.27, 22.46, 4.99),
    ),
}


@pytest.mark.parametrize("row", LATER)
def test_a_later_start_stands_beside_what_is_predicted_of_it(tmp_path, row: str) -> None:
    name, changes, (own, cache_gib, sequences) = LATER[row]
    case, card = CASES[name], CARD if isinstance(changes, dict) else H100
    flags = {"overrides": {**case.overrides, **changes}} if card is CARD else {"flags": changes}
    case = replace(case, **flags)
    eagle = {**DENSE, "num_hidden_layers": 1}
    configs = {case.checkpoint: SHAPES.get(case.checkpoint, DENSE), "qwen3-8b-eagle3": eagle}
    for checkpoint, config in configs.items():
        write_files(tmp_path, {f"{checkpoint}/config.json": json.dumps(config)})
    prediction = predicted_fit(case, card, tmp_path, "0.26.0")
    assert prediction.room_gib and prediction.sequence_gib and prediction.budget_gib
    gib_by_term = {term.name: term.gib for term in prediction.terms}
    overhead = gib_by_term.pop(OVERHEAD)
    weights = (sum(gib_by_term.values()), own)
    room = (prediction.room_gib[1], cache_gib)
    sequence = (prediction.sequence_gib, cache_gib / sequences)
    pairs = (weights, (overhead, prediction.budget_gib - own - cache_gib), room, sequence)
    cells = [f"{forecast:.2f}, {actual:.2f}" for forecast, actual in pairs]
    ratios = [f"{forecast / actual:.3f}" for forecast, actual in (weights, room, sequence)]
    row_text = f"| {' | '.join([row, *cells, *ratios])} |"
    assert f"{row_text}\n" in DOCUMENT, row_text


def test_what_sglang_shares_out_stands_beside_what_is_predicted_of_it() -> None:
    """0.5.17 on that card, 2026-11-25: it found 78.50 GiB."""
    knowledge = catalogue.load().knowledge
    spark = knowledge.hardware["dgx-spark"]
    machine_figures = {
        key: replace(spark.memory_total_gib, value=value)
        for key, value in (("memory_total_gib", 78.50), ("system_gib", 0), ("engine_start_gib", 0))
    }
    machine = replace(spark, **machine_figures, reserve_gib=replace(spark.reserve_gib, value=0))
    size = replace(spark.memory_total_gib, value=16.381, unit="GB")
    model = KnownCheckpoint(
        "Qwen/Qwen3-8B", weights_gb=size, architecture=from_config(DENSE, "here")
    )
    recipe = replace(catalogue.load().recipes["mistral-small-4-119b-nvfp4-sglang"], model=model.id)
    prediction = fit_of(
        recipe,
        Knowledge({model.id: model}, {MACHINE: machine}),
        machine=MACHINE,
        asked=Serving(utilization=0.8, context=32768),
    )
    assert prediction.room_gib and prediction.sequence_gib
    rows = {
        "weights": (prediction.terms[0].gib, 15.28),
        "KV cache": (prediction.room_gib[1], 47.52),
        "one sequence": (prediction.sequence_gib, 47.52 / 345969 * 32768),
    }
    for name, (forecast, actual) in rows.items():
        row_text = f"| {name} | {forecast:.2f} | {actual:.2f} | {forecast / actual:.3f} |"
        assert f"{row_text}\n" in DOCUMENT, row_text
