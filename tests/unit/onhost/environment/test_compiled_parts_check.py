"""The parts of an engine that a recipe uses: which they are, and what becomes of their kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.onhost.engines import ENGINES, EngineUnavailable
from lockstep.onhost.environment.compiled_parts_check import Parts, checkpoint_traits

VLLM = ENGINES["vllm"]
ALWAYS = ["matrix product", "normalisation", "sampler"]
NVFP4 = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {"weights": {"num_bits": 4, "type": "float", "observer_kwargs": {}}}
    },
    "kv_cache_scheme": {"num_bits": 8, "type": "float"},
}


@pytest.mark.parametrize(
    ("config", "expected_traits"),
    [
        ({}, set()),
        ({"num_experts": 128}, {"experts"}),
        ({"text_config": SimpleNamespace(n_routed_experts=64)}, {"experts"}),
        # Gemma's dense models have the key, and no experts.
        ({"num_experts": None}, set()),
        ({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}}, {"FP8"}),
        ({"quantization_config": NVFP4}, {"FP4"}),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, {"FP4"}),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, set()),
    ],
)
def test_a_checkpoint_says_whether_it_has_experts_and_how_wide_its_weights_are(
    config: dict[str, Any], expected_traits: set[str]
) -> None:
    assert checkpoint_traits(SimpleNamespace(**config)) == expected_traits


@pytest.mark.parametrize(
    ("words", "variables", "of", "parts"),
    [
        ("", {}, set(), ["attention FLASH_ATTN"]),
        ("--attention-backend=triton_attn", {}, set(), ["attention TRITON_ATTN"]),
        ("", {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, set(), ["attention FLASHINFER"]),
        ("-q fp8", {}, set(), ["attention FLASH_ATTN", "FP8 product"]),
        ("", {}, {"experts"}, ["attention FLASH_ATTN", "experts triton"]),
        (
            "--attention-backend TRITON_MLA --moe-backend marlin",
            {},
            {"experts", "FP4"},
            [
                "attention TRITON_MLA",
                "attention FLASH_ATTN",
                "FP4 product",
                "experts marlin FP4",
            ],
        ),
    ],
)
def test_flags_variables_and_the_checkpoint_name_the_parts(
    words: str, variables: dict[str, str], of: set[str], parts: list[str]
) -> None:
    argv = ["vllm", "serve", "m", *words.split()]
    assert VLLM.recipe_kernels(argv, variables, of) == [*ALWAYS, *parts]


def kernel(part: str, environment: Mapping[str, str], prefixes: tuple[str, ...]) -> float | str:
    """Instead of one on a GPU: what it does stands in its name."""
    if part == "dies":
        os.abort()
    if part == "unknown":
        raise EngineUnavailable("no kernel")
    return 0.001 if part == "agrees" else f"wrong with {dict(environment)}"


def test_a_kernel_that_ends_its_process_costs_the_others_nothing() -> None:
    parts = Parts("0.26.0")
    for part in ("dies", "unknown", "wrong", "agrees"):
        parts.wanted_parts[part, (("VLLM_X", "1"),)] = ["one", "two"]
    parts.run_kernels(None, kernel)
    prefix = "recipe one, two: vLLM 0.26.0, "
    assert parts.wrong == [
        f"{prefix}dies: its kernel ended the process",
        f"{prefix}wrong: wrong with {{'VLLM_X': '1'}}",
    ]
    assert (parts.differences, parts.silent_parts) == ({"agrees": 0.001}, ["unknown: no kernel"])
