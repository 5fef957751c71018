"""The peak of vLLM's profile against docs/evidence/cuda.md (0.26.0 on an H200, 2026-11-23)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_card import CARD, KNOWN, dense, dense_model

from lockstep.fit.fit import OVERHEAD, fit
from lockstep.fit.profile import first_runner, graphs_gib, overhead_gib, second_runner
from lockstep.models.architecture import Architecture, Layers
from lockstep.models.known_models import GIB, Knowledge, Model
from lockstep.recipes.sizing import Serving, serving

DOCUMENT = (Path(__file__).parents[3] / "docs/evidence/cuda.md").read_text()


def shapes_of(model: Model) -> Architecture:
    assert model.architecture is not None
    return model.architecture


QWEN_MODEL, MISTRAL_MODEL, GEMMA_MODEL = (
    KNOWN.knowledge.model(name)
    for name in (
        "Qwen/Qwen3.6-35B-A3B",
        "mistralai/Mistral-Small-4-119B-2603-NVFP4",
        "RedHatAI/gemma-4-26B-A4B-it-FP8-dynamic",
    )
)
EIGHT_B = dense_model("Qwen/Qwen3-8B", 36, 4096, 15.27)
QWEN, MISTRAL, GEMMA, LARGE = map(shapes_of, (QWEN_MODEL, MISTRAL_MODEL, GEMMA_MODEL, EIGHT_B))
SMALL = dense(28, 1024)


def at(sequences: int, tokens: int, draft: str | None = None) -> Serving:
    return Serving(sequences=sequences, batched_tokens=tokens, speculative=draft)


def of_words(shapes: Architecture) -> Architecture:
    return replace(shapes, vocabulary=262144)


# Row of docs/evidence/cuda.md, runner, shapes, settings; GiB of the peak that was measured.
STARTS = [
    ("Mistral Small 4, first", first_runner, MISTRAL, at(1024, 8192), 2.425),
    ("the same with V = 262,144", first_runner, of_words(MISTRAL), at(1024, 8192), 4.239),
    ("Qwen3-0.6B, first", first_runner, SMALL, at(1024, 8192), 2.156),
    ("Qwen3-8B, drafting by n-grams, first", first_runner, LARGE, at(1024, 8192, "ngram"), 4.534),
    ("Qwen3-0.6B, drafting by n-grams, first", first_runner, SMALL, at(256, 8192, "ngram"), 1.209),
    ("Qwen3.6-35B-A3B without pictures, first", first_runner, QWEN, at(4, 8192), 1.180),
    ("the same", first_runner, QWEN, at(4, 32768), 4.625),
    ("Mistral Small 4, first", first_runner, MISTRAL, at(4, 8192), 1.474),
    ("the same", first_runner, MISTRAL, at(4, 16384), 2.167),
    ("the same", first_runner, MISTRAL, at(64, 32768), 4.173),
    ("Qwen3-8B, second", second_runner, LARGE, at(4, 8192), 1.285),
    ("Qwen3-8B, second", second_runner, LARGE, at(1024, 8192), 1.285),
    ("the same with V = 262,144", second_runner, of_words(LARGE), at(1024, 8192), 2.125),
    ("Qwen3-8B, second", second_runner, LARGE, at(4, 32768), 3.090),
    ("Qwen3-0.6B, second", second_runner, SMALL, at(1024, 8192), 0.340),
    ("Qwen3-8B with EAGLE-3, second", second_runner, LARGE, at(4, 8192, "eagle3"), 1.875),
    ("Qwen3-8B with EAGLE-3, second", second_runner, LARGE, at(1024, 8192, "eagle3"), 1.875),
    ("the same with EAGLE-3", second_runner, LARGE, at(256, 16384, "eagle3"), 2.500),
    ("the same with EAGLE-3", second_runner, LARGE, at(4, 32768, "eagle3"), 4.090),
    ("Qwen3-0.6B with EAGLE-3, second", second_runner, SMALL, at(1024, 8192, "eagle3"), 0.723),
    ("Qwen3-0.6B with EAGLE-3, long", second_runner, SMALL, at(4, 32768, "eagle3"), 1.152),
    ("Gemma 4, second", second_runner, GEMMA, at(8, 2048), 1.403),
    ("Gemma 4, second", second_runner, GEMMA, at(8, 8192), 1.482),
    ("Gemma 4, second", second_runner, GEMMA, at(1024, 8192), 1.777),
    ("Gemma 4, second", second_runner, GEMMA, at(8, 32768), 4.584),
]
# GiB that the rules miss by more than 3 percent: all of the smallest model.
WIDER = {
    "Qwen3-0.6B, drafting by n-grams, first": 0.056,
    "Qwen3-0.6B, second": 0.02,
    "Qwen3-0.6B with EAGLE-3, long": 0.041,
}


@pytest.mark.parametrize(("row", "runner", "shapes", "asked", "measured"), STARTS)
def test_the_peak_of_a_start_is_what_its_rule_gives(
    row: str,
    runner: Callable[[Architecture, Serving], float | None],
    shapes: Architecture,
    asked: Serving,
    measured: float,
) -> None:
    found = runner(shapes, asked)
    assert found is not None
    assert found / GIB == pytest.approx(measured, rel=0.03, abs=WIDER.get(row, 0.0))
    rows = [line for line in DOCUMENT.splitlines() if line.startswith(f"| {row} |")]
    ends = (f" {found / GIB:.3f} |", f" {measured:.3f} |")
    assert any(line.endswith(ends[0]) and ends[1] in line for line in rows)


# Full starts: row of docs/evidence/cuda.md, model, share, settings; GiB of KV cache that vLLM
# gave. Of Mistral only its ratio to an older prediction was kept: 125.82 - 65.94 - 5.4 GiB are
# 0.940 of it.
MTP = {"kv_dtype": "fp8", "prefix_caching": False, "speculative": "mtp", "draft_tokens": 2}
ROOMS = [
    ("Qwen3-8B, BF16", EIGHT_B, 0.5, {"context": 32768}, 53.12),
    ("Qwen3.6-35B-A3B, BF16, 65536", QWEN_MODEL, 0.8, {"context": 65536}, 41.25),
    (
        *("the same with MTP of 2 tokens, FP8 cache, 262144", QWEN_MODEL, 0.7),
        *({"context": 262144, "sequences": 4, **MTP}, 28.45),
    ),
    (
        *("Mistral Small 4, NVFP4 through Marlin, 262144", MISTRAL_MODEL, 0.9),
        *({"context": 262144, "sequences": 128, "batched_tokens": 16384}, 57.96),
    ),
]


@pytest.mark.parametrize(("row", "model", "share", "settings", "kv"), ROOMS)
def test_the_room_of_a_full_start_is_predicted_within_three_percent(
    row: str, model: Model, share: float, settings: dict[str, Any], kv: float
) -> None:
    recipe = replace(KNOWN.recipes["qwen3.6-35b-a3b-bf16"], model=model.id)
    knowledge = Knowledge({model.id: model}, {"h200": CARD})
    asked = Serving(utilization=share, **settings)
    found = fit(recipe, knowledge, machine="h200", asked=asked)
    assert found.room_gib
    assert found.room_gib[1] == pytest.approx(kv, rel=0.03)
    line = next(line for line in DOCUMENT.splitlines() if line.startswith(f"| {row} |"))
    assert line.endswith(f" {found.room_gib[1] / kv:.3f} |"), found.room_gib[1] / kv


def test_a_kind_that_nobody_started_has_no_rule() -> None:
    asked = at(4, 8192)
    assert overhead_gib(QWEN, asked, vision=True) is not None
    unmeasured = [
        (replace(QWEN, width=4096), asked, True),
        (replace(QWEN, experts=4), asked, True),
        (replace(QWEN, vocabulary=None), asked, True),
        (replace(QWEN, layers=MISTRAL.layers), asked, True),
        (QWEN, replace(asked, tensor_parallel=2), True),
        (LARGE, replace(asked, kind="embed"), False),
        (LARGE, replace(asked, speculative="eagle"), False),
        (LARGE, replace(asked, speculative="eagle3"), True),
        (GEMMA, replace(asked, speculative="mtp"), False),
        (replace(GEMMA, width=2048), asked, False),
        (LARGE, asked, True),
        (replace(LARGE, width=None), asked, False),
        (replace(LARGE, layers=(Layers("sliding", 4, 8, 128, 512),)), asked, False),
    ]
    for shapes, settings, vision in unmeasured:
        assert overhead_gib(shapes, settings, vision=vision) is None


def test_what_stands_beside_the_peak() -> None:
    """0.24 GiB outside PyTorch; of the first runner graphs, and 0.5 GiB where pictures are seen."""
    asked = at(4, 8192)
    first, second = first_runner(QWEN, asked), second_runner(LARGE, asked)
    assert first and second
    blind = overhead_gib(QWEN, asked, vision=False)
    assert blind == pytest.approx(first / GIB + 0.24 + graphs_gib(asked))
    assert overhead_gib(QWEN, asked, vision=None) == pytest.approx(blind + 0.5)
    assert overhead_gib(LARGE, asked, vision=None) == pytest.approx(second / GIB + 0.24)
    assert graphs_gib(asked) == pytest.approx(0.106, abs=0.001)
    assert graphs_gib(at(256, 8192)) == graphs_gib(at(1024, 8192)) == 0.5


def test_a_spark_keeps_its_worse_case_and_the_engines_that_have_no_such_profile() -> None:
    recipe = KNOWN.recipes["qwen3.6-35b-a3b-prismaquant-dflash-k3"]
    found = fit(recipe, KNOWN.knowledge)
    assert found.room_gib and found.budget_gib
    held = {term.name: term.gib for term in found.terms}
    low = held.pop(OVERHEAD)
    assert low == overhead_gib(QWEN, serving(recipe), vision=False)
    assert found.budget_gib - sum(held.values()) - found.room_gib[0] == pytest.approx(18.4)
    many = replace(serving(recipe), sequences=4096)
    worse, better = fit(recipe, KNOWN.knowledge, asked=many).room_gib or (0.0, 1.0)
    assert worse == better
    sglang = fit(KNOWN.recipes["mistral-small-4-119b-nvfp4-sglang"], KNOWN.knowledge)
    assert next(t.gib for t in sglang.terms if t.name == OVERHEAD) == 2.7
