"""The parts of an engine that a recipe uses: which they are, and reports of their kernels."""

import os
from types import SimpleNamespace
from unittest import mock

import pytest

from lockstep.onhost.engines import ENGINES, EngineUnavailable
from lockstep.onhost.environment import kernel_self_test
from lockstep.onhost.environment.compiled_parts_check import Parts, checkpoint_traits

VLLM = ENGINES["vllm"]
ALWAYS = ["matrix product", "normalisation", "sampler"]
WEIGHTS = {"num_bits": 4, "type": "float", "observer_kwargs": {}}
NVFP4 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": WEIGHTS}},
    "kv_cache_scheme": {"num_bits": 8, "type": "float"},
}


@pytest.mark.parametrize(
    ("config", "expected_traits"),
    [
        ({"text_config": SimpleNamespace(n_routed_experts=64)}, {"experts"}),
        # Gemma's dense models have the key, and no experts.
        ({"num_experts": None}, set()),
        ({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}}, {"FP8"}),
        ({"quantization_config": NVFP4}, {"FP4"}),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, set()),
    ],
)
def test_a_checkpoint_says_whether_it_has_experts_and_narrow_weights(config, expected_traits):
    assert checkpoint_traits(SimpleNamespace(**config)) == expected_traits


MLA = "--attention-backend TRITON_MLA --moe-backend marlin"
MLA_PARTS = ["attention TRITON_MLA", "attention FLASH_ATTN", "FP4 product", "experts marlin FP4"]


@pytest.mark.parametrize(
    ("words", "variables", "of", "parts"),
    [
        ("--attention-backend=triton_attn", {}, set(), ["attention TRITON_ATTN"]),
        ("", {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, set(), ["attention FLASHINFER"]),
        ("-q fp8", {}, set(), ["attention FLASH_ATTN", "FP8 product"]),
        ("", {}, {"experts"}, ["attention FLASH_ATTN", "experts triton"]),
        (MLA, {}, {"experts", "FP4"}, MLA_PARTS),
    ],
)
def test_flags_variables_and_the_checkpoint_name_the_parts(words, variables, of, parts):
    argv = ["vllm", "serve", "m", *words.split()]
    assert VLLM.recipe_kernels(argv, variables, of) == [*ALWAYS, *parts]


def kernel(part: str, environment: dict[str, str], prefixes: tuple[str, ...]) -> float | str:
    """Instead of one on a GPU: what it does stands in its name."""
    if part == "dies":
        os.abort()
    if part == "unknown":
        raise EngineUnavailable("no kernel")
    return 0.001 if part == "agrees" else f"wrong with {dict(environment)}"


def test_a_kernel_that_ends_its_process_costs_the_others_nothing():
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


OFF = "off PyTorch's; rounding makes at most 2%"


@pytest.mark.parametrize(
    ("part", "result", "outcome"),
    [
        ("matrix product", 0.0, 0.0),
        ("matrix product", 0.4, f"its result is 40.0% {OFF}"),
        ("matrix product", float("nan"), f"its result is nan% {OFF}"),
        ("matrix product", ModuleNotFoundError("flashinfer"), "ModuleNotFoundError: flashinfer"),
        # The others are not asked.
        ("matrix product", EngineUnavailable("this vLLM has no a:b"), EngineUnavailable),
        ("matrix product", TypeError("no k"), EngineUnavailable),
        ("attention NEW", 0.0, EngineUnavailable),
    ],
)
def test_a_kernel_s_end_is_told_in_one_line(part, result, outcome):
    """No kernel runs here, for there is no GPU."""
    with mock.patch.object(kernel_self_test, "_kernel_difference", side_effect=[result]):
        if outcome is not EngineUnavailable:
            assert kernel_self_test.compare_kernel(part, {}, ()) == outcome
            return
        with pytest.raises(EngineUnavailable):
            kernel_self_test.compare_kernel(part, {}, ())
