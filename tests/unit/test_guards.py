"""The freeze guard fits the engine's version."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep import guards, recipes
from lockstep.command import environment, serve_command

VARIABLE = ("VLLM_FLASHINFER_MOE_BACKEND", "latency")


def recipe_of(body: str = "") -> recipes.Recipe:
    text = f"model: org/model-NVFP4\nruntime: vllm\nlockstep: {{moe: true}}\n{body}"
    return recipes.parse(text, Path("some.yaml"))


@pytest.mark.parametrize(
    ("version", "variable", "flag"),
    [
        ("0.18.0", True, False),
        ("0.19.2rc1.dev7+gabcdef", True, False),
        ("0.21.0", True, False),
        ("0.22.0", False, True),
        ("0.22.0rc1", False, True),
        ("0.32.0+cpu", False, True),
        (None, True, True),
        ("latest", True, True),
    ],
)
def test_variable_below_0_22_flag_from_there_both_where_unknown(
    version: str | None, variable: bool, flag: bool
) -> None:
    recipe = recipe_of()
    assert (VARIABLE in environment(recipe, engine_version=version).items()) is variable
    argv = serve_command(recipe, engine_version=version)
    assert (argv[-2:] == ("--moe-backend", "marlin")) is flag


def test_a_backend_that_the_recipe_names_is_left_alone() -> None:
    recipe = recipe_of("defaults: {moe_backend: flashinfer_b12x}")
    argv = serve_command(recipe, engine_version="0.32.0")
    assert argv.count("--moe-backend") == 1 and "flashinfer_b12x" in argv


def test_unquantised_experts_get_triton_because_marlin_refuses_them() -> None:
    recipe = recipe_of("metadata: {model_dtype: bfloat16}")
    assert serve_command(recipe, engine_version="0.32.0")[-1] == "triton"


def test_the_variable_is_dropped_where_the_engine_would_ignore_it() -> None:
    recipe = recipe_of("env: {VLLM_FLASHINFER_MOE_BACKEND: latency, OTHER: 1}")
    assert environment(recipe, engine_version="0.32.0") == {"OTHER": "1"}


def test_the_recipes_own_value_of_the_variable_wins() -> None:
    recipe = recipe_of("env: {VLLM_FLASHINFER_MOE_BACKEND: throughput}")
    assert environment(recipe, engine_version="0.19.1")[VARIABLE[0]] == "throughput"


def test_dense_models_and_sglang_need_no_guard() -> None:
    dense = recipes.parse("model: a/b\nlockstep: {moe: false}", Path("some.yaml"))
    sglang = recipes.parse("model: a/b\nruntime: sglang\nlockstep: {moe: true}", Path("s.yaml"))
    for recipe in (dense, sglang):
        assert environment(recipe) == {}
        assert "--moe-backend" not in serve_command(recipe)


def test_a_version_that_cannot_be_read_counts_as_unknown() -> None:
    assert guards.release("nightly") is None
    assert guards.release(None) is None
