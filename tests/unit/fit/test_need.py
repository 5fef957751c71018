"""The memory that must be available before an engine starts, against the engines' arithmetic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from a_card import KNOWN, answer

from lockstep.fit.fit import fit
from lockstep.onhost.core.memory_requirement import Need
from lockstep.recipes.sizing import serving

EAGLE = "mistral-small-4-119b-nvfp4-sglang-eagle"
PLAIN = "mistral-small-4-119b-nvfp4-sglang"
FORK = "mistral-small-4-119b-nvfp4-vllm-fork"
QWEN = "qwen3.6-35b-a3b-prismaquant-dflash-k3"
START = 2.7
# What a mixture on vLLM takes beyond its share once it serves.
BEYOND = 0.9


def need(name: str, **settings: object) -> Need:
    return answer(name, **settings).need


def kv_pool(weights: float, share: float, available: float) -> float:
    """The KV cache that SGLang 0.5.23 leaves (`_profile_available_bytes`), in its own words."""
    pre_model_load_memory = available - START
    available_gpu_memory = pre_model_load_memory - weights
    return available_gpu_memory - pre_model_load_memory * (1 - share) - 100 / 1024


@pytest.mark.parametrize(("name", "share"), [(EAGLE, 0.65), (EAGLE, 0.72), (PLAIN, 0.8)])
def test_sglang_loads_and_serves_its_context_from_exactly_what_is_said(
    name: str, share: float
) -> None:
    prediction = answer(name, utilization=share)
    weights = sum(term.gib for term in prediction.terms if term.name in ("weights", "draft"))
    assert prediction.sequence_gib
    # To a hundredth, as it is written for the host.
    assert kv_pool(weights, share, prediction.loads_gib) == pytest.approx(0, abs=0.005)
    assert kv_pool(weights, share, prediction.needs_gib) == pytest.approx(
        prediction.sequence_gib, abs=0.005
    )
    assert prediction.loads_gib < prediction.needs_gib


@pytest.mark.parametrize(("label", "share"), [("0.65", 0.65), ("0.72, ours", 0.72), ("0.75", 0.75)])
def test_the_table_of_shares_in_the_documentation_is_what_the_code_says(
    label: str, share: float
) -> None:
    prediction = answer(EAGLE, utilization=share)
    row = f"| {label} | {prediction.loads_gib:.1f} GiB | {prediction.needs_gib:.1f} GiB | "
    document = (Path(__file__).parents[3] / "docs" / "fit.md").read_text()
    assert f"{row}{prediction.host_use_gib:.1f} GiB |" in document
    assert serving(KNOWN.recipes[EAGLE]).utilization == 0.72


def test_vllm_needs_its_share_of_the_hosts_own_memory_and_the_minimum() -> None:
    beside = START + BEYOND
    # Half of the 119.56 - 5.7 - 1.2 GiB at rest less what it holds there.
    memory_need = need(FORK)
    minimum_gib = memory_need.minimum_gib
    assert minimum_gib == pytest.approx(6.71, abs=0.005)
    for total in (121.69, 119.6):
        assert memory_need.available(total) == pytest.approx(0.8 * total + beside + minimum_gib)
    assert need(FORK, utilization=0.5).available(121.69) == pytest.approx(0.5 * 121.69 + beside + 8)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_an_engine_with_a_share_of_what_it_finds_leaves_the_minimum(share: float) -> None:
    least = Need(10.0, share, beside_gib=START, minimum_gib=8.0).available(121.69)
    assert least - START - share * (least - START) == pytest.approx(8)
    # One that takes all starts nowhere.
    assert Need(10.0, 1.0, beside_gib=START, minimum_gib=8.0).available(121.69) > 121.69


def test_a_published_figure_stays_with_the_share_and_the_machine_that_it_is_of() -> None:
    beside = START + BEYOND + 8
    assert need(QWEN).available(121.69) == 67 + 8
    assert need(QWEN, utilization=0.6).available(121.69) == pytest.approx(0.6 * 121.69 + beside)
    prediction = fit(KNOWN.recipes[QWEN], KNOWN.knowledge, machine="dgx-spark-64")
    assert prediction.needs_gib == pytest.approx(0.5 * 59.78 + beside)


def test_a_kv_cache_in_bytes_does_not_free_vllm_from_its_share() -> None:
    """`request_memory` looks at the share before `kv_cache_memory_bytes` is read (0.17 to 0.32)."""
    peak_gib = need("deepseek-v4-flash-2x").serving_peak_gib(121.69)
    assert peak_gib == pytest.approx(0.8 * 121.69 + START + BEYOND)
    # SGLang takes nothing beside its share.
    assert need(EAGLE).serving_peak_gib(121.69) == pytest.approx(0.72 * 121.69 + START)
    little = need("deepseek-v4-flash-2x", utilization=0.3)
    assert little.gib == pytest.approx(START + 155.44 / 2 + 12 + 5.4, abs=0.1)
    assert little.available(121.69) == little.gib + little.minimum_gib


def test_a_recipe_without_a_share_is_believed_where_it_states_what_it_holds() -> None:
    assert Need(2.45).available(121.69) == Need(2.45).serving_peak_gib(121.69) == 2.45
    recipe = KNOWN.recipes[QWEN]
    command = recipe.command.replace("--gpu-memory-utilization {gpu_memory_utilization}", "")
    unnamed_recipe = replace(recipe, command=command)
    memory_need = fit(unnamed_recipe, KNOWN.knowledge).need
    assert memory_need == Need(67.0, minimum_gib=8.0)
    unstated_recipe = replace(unnamed_recipe, lockstep=replace(recipe.lockstep, memory=None))
    memory_need = fit(unstated_recipe, KNOWN.knowledge).need
    # vLLM's own default.
    assert memory_need.serving_peak_gib(100) == pytest.approx(92 + START + BEYOND)


def test_unknown_weights_on_sglang_need_the_share_of_a_spark_at_rest() -> None:
    available_gib = need("qwen3.8-27b-nvfp4-sglang-dflash2").available(121.69)
    assert available_gib == pytest.approx(0.5 * (121.69 - 5.7 - START) + START, abs=0.005)
