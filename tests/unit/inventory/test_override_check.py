"""Every override reaches all who read what it is about, or is refused with what to do instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.core.errors import InventoryError
from lockstep.fit import catalogue
from lockstep.fit.recipe_checks import check
from lockstep.inventory.bound_targets import BoundTarget, bind
from lockstep.inventory.settings import Settings, TargetData
from lockstep.lock.pins import ImagePin, ModelPin, Pins
from lockstep.lock.wanted import wanted
from lockstep.recipes.recipe_file import parse
from lockstep.recipes.sizing import serving
from lockstep.units.variants import variants

VLLM = """
recipe_version: "2"
model: org/model
model_revision: aaaaaaa
runtime: vllm
container: ghcr.io/a/b:main
defaults:
  port: 8000
  gpu_memory_utilization: 0.5
  speculative_config: '{"method":"dflash","model":"org/draft","num_speculative_tokens":3}'
command: vllm serve {model} --port {port} --speculative-config '{speculative_config}'
lockstep:
  moe: true
  draft: {model: org/draft}
"""
SGLANG = """
recipe_version: "2"
model: org/model
runtime: sglang
container: ghcr.io/a/b:main
defaults: {port: 8000}
lockstep: {moe: true}
"""
LLAMACPP = """
recipe_version: "2"
model: org/model:Q4
runtime: llama-cpp
container: ghcr.io/a/b:main
defaults: {port: 8000}
lockstep: {moe: true}
"""
PINS = Pins(
    images={"ghcr.io/a/b:main": ImagePin("sha256:" + "1" * 64, "aarch64", 1)},
    models={name: ModelPin("main", "a" * 40, ()) for name in ("org/model", "org/draft")},
)


def bound(text: str = VLLM, cluster: str | None = None, **overrides: Any) -> BoundTarget:
    data = TargetData(recipe="main", unit="engine", overrides=overrides, cluster=cluster)
    settings = Settings(name="spark", targets={"qwen": data})
    known = {**catalogue.load().recipes, "main": parse(text, Path("main.yaml"))}
    (target,) = bind(settings, known, {})
    return target


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        (VLLM, "model", "lab/tiny-qwen3-strict"),
        (VLLM, "model", "/data/mine"),
        (VLLM, "revision", "bbbbbbb"),
        (VLLM, "draft_model", "org/other"),
        (VLLM, "draft_revision", "bbbbbbb"),
        (VLLM, "download_dir", "/elsewhere"),
        (SGLANG, "model_path", "org/other"),
        (SGLANG, "model-path", "org/other"),
        (SGLANG, "speculative_draft_model_path", "org/other"),
        (LLAMACPP, "hf_repo", "org/other:Q8"),
        (LLAMACPP, "model", "org/other:Q8"),
    ],
)
def test_what_is_fetched_is_the_recipes_own_word(text: str, key: str, value: str) -> None:
    with pytest.raises(InventoryError) as refused:
        bound(text, **{key: value})
    assert f"targets.qwen.overrides.{key}" in refused.value.what
    assert (
        "copy main.yaml" in refused.value.remedy and "targets.qwen.recipe" in refused.value.remedy
    )


@pytest.mark.parametrize(
    ("key", "own"),
    [
        ("host", "bind"),
        ("port", "port"),
        ("container", "image"),
        ("image", "image"),
        ("fallback", "fallback"),
        ("engine_port", "engine_port"),
        ("start_timeout_s", "start_timeout_s"),
    ],
)
def test_what_the_target_says_has_one_place(key: str, own: str) -> None:
    with pytest.raises(InventoryError) as refused:
        bound(**{key: "x"})
    assert refused.value.remedy == f"Set targets.qwen.{own}."


RECIPES_OWN = [
    "env",
    "command",
    "executor_config",
    "lockstep",
    "moe",
    "licence",
    "draft",
    "runtime",
]
CLUSTERS_OWN = ("nnodes", "node_rank", "master_addr", "data_parallel_address")


@pytest.mark.parametrize(
    ("key", "cluster", "said"),
    [
        *((key, None, "said by the recipe alone") for key in RECIPES_OWN),
        *((key, "pair", "the cluster decides it") for key in CLUSTERS_OWN),
        ("head_ip", None, "no flag of an engine"),
    ],
)
def test_what_is_no_flag_of_an_engine_or_somebody_elses_word_is_refused(
    key: str, cluster: str | None, said: str
) -> None:
    with pytest.raises(InventoryError, match=said):
        bound(cluster=cluster, **{key: 3})


def test_a_fallback_is_held_to_the_same() -> None:
    with pytest.raises(InventoryError, match=r"qwen\.fallback_overrides\.model_path"):
        with_fallback(fallback_overrides={"model_path": "org/other"})
    with pytest.raises(InventoryError, match=r"qwen\.overrides\.model"):
        with_fallback(VLLM, overrides={"model": "org/other"})
    # It runs on another engine, and gets none of these.
    assert with_fallback(overrides={"enable_expert_parallel": True})


def with_fallback(text: str = SGLANG, **data: Any) -> tuple[BoundTarget, ...]:
    target = TargetData(recipe="main", unit="engine", fallback="spare", **data)
    recipes = {
        name: parse(each, Path(f"{name}.yaml")) for name, each in (("main", VLLM), ("spare", text))
    }
    return bind(Settings(name="spark", targets={"qwen": target}), recipes, {})


@pytest.mark.parametrize(
    ("text", "slip", "meant"),
    [
        (VLLM, "gpu_memory_utilisation", "gpu_memory_utilization"),
        (VLLM, "max-modle-len", "max_model_len"),
        (VLLM, "max_modellen", "max_model_len"),
        (VLLM, "max_num_seq", "max_num_seqs"),
        (VLLM, "kv_cache_dtpye", "kv_cache_dtype"),
        (VLLM, "enable_prefix_cachin", "enable_prefix_caching"),
        (SGLANG, "mem_fraction_statci", "mem_fraction_static"),
        (SGLANG, "context_lenght", "context_length"),
        (LLAMACPP, "ctx_szie", "ctx_size"),
    ],
)
def test_a_slip_of_a_flag_is_refused_with_the_flag(text: str, slip: str, meant: str) -> None:
    with pytest.raises(InventoryError) as refused:
        bound(text, **{slip: 1})
    assert f"targets.qwen.overrides.{slip} is no flag of " in refused.value.what
    assert refused.value.remedy == f"Did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        (VLLM, "gpu_memory", "gpu_memory_utilization"),
        (VLLM, "tokenizer-m", "tokenizer_mode"),
        (SGLANG, "mem-fraction", "mem_fraction_static"),
    ],
)
def test_a_beginning_of_a_flag_is_refused_with_the_flag(text: str, key: str, meant: str) -> None:
    """The engine would take it, past every check of the whole flag."""
    with pytest.raises(InventoryError) as refused:
        bound(text, **{key: 1})
    assert refused.value.what == f"targets.qwen.overrides.{key} is the beginning of a flag"
    assert refused.value.remedy == f"Write {meant}."


@pytest.mark.parametrize(
    ("text", "key"),
    [
        # Flags of vLLM 0.32 and SGLang 0.5.9 that are nearest to known ones, and some of nobody's
        # list: the engine's own parser is asked about these.
        (VLLM, "mm_processor_cache_gb"),
        (VLLM, "data_parallel_size_local"),
        (VLLM, "mamba_ssm_cache_dtype"),
        (VLLM, "no_enable_flashinfer_autotune"),
        (VLLM, "async-scheduling"),
        (SGLANG, "mm_attention_backend"),
        (SGLANG, "moe_data_parallel_size"),
        (SGLANG, "cuda_graph_max_bs"),
        (LLAMACPP, "cache_type_v"),
        (LLAMACPP, "n_gpu_layers"),
    ],
)
def test_a_flag_that_nobody_listed_is_the_parsers_to_judge(text: str, key: str) -> None:
    assert bound(text, **{key: 1}).data.overrides == {key: 1}


@pytest.mark.parametrize(
    "overrides",
    [
        {"max_model_len": 4096},
        {"gpu_memory_utilization": 0.3},
        {"max_num_seqs": 2},
        {"kv_cache_dtype": "fp8"},
        {"served_model_name": "mine"},
        {"quantization": "fp8"},
        {"tensor_parallel": 1},
    ],
)
def test_what_is_taken_is_in_lock_fit_and_unit(overrides: dict[str, Any]) -> None:
    target = bound(**overrides)
    settings = Settings(name="spark", targets={"qwen": target.data})
    (variant,) = variants(settings, (target,), PINS, engine_id="0" * 12)
    asked = serving(target.recipe, target.overrides(target.recipe))
    for key, value in overrides.items():
        (flag, *_) = target.recipe.engine.spellings(key)
        at = variant.engine_argv.index(flag)
        assert variant.engine_argv[at + 1] == str(value)
    assert variant.model_name == target.model_name
    assert variant.context == asked.context
    # The lock asks for what the unit opens.
    named = {item.key for item in wanted([(settings, (target,))]) if item.section == "models"}
    assert named == {"org/model", "org/draft"}
    assert variant.engine_argv[2] == "org/model"
    # The guard is of the experts as they are loaded.
    guard = variant.engine_argv[variant.engine_argv.index("--moe-backend") + 1]
    assert guard == ("marlin" if "quantization" in overrides else "triton")


def test_a_name_that_is_taken_away_leaves_the_models_own() -> None:
    target = bound(SGLANG, served_model_name=None)
    settings = Settings(name="spark", targets={"qwen": target.data})
    (variant,) = variants(settings, (target,), PINS, engine_id="0" * 12)
    assert variant.model_name == target.model_name == "org/model"
    # SGLang is given a folder, and would call the model by it.
    assert ("--served-model-name", "org/model") in zip(
        variant.engine_argv, variant.engine_argv[1:], strict=False
    )


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("speculative_config", {"method": "dflash", "model": "org/other"}, VLLM),
        ("tokenizer", "org/other", VLLM),
        ("hf_config_path", "org/other", VLLM),
        ("mmproj_url", "https://hub.example/org/other.gguf", LLAMACPP),
        ("lora", "org/other.gguf", LLAMACPP),
        ("mmproj", "mmproj-org-other.gguf", LLAMACPP),
    ],
)
def test_an_override_that_names_what_nobody_fetches_stops_the_deploy(
    key: str, value: Any, text: str
) -> None:
    known = catalogue.load()
    for wrong, said in ((value, True), ("/data/mine", False)):
        if isinstance(value, dict) and not said:
            wrong = {**value, "model": "org/draft"}
        target = bound(text, **{key: wrong})
        found = check(target.recipe, known, overrides=target.overrides(target.recipe))
        stops = [each for each in found if each.code == "not-fetched"]
        assert bool(stops) is said
        assert all(each.severity == "error" and "other" in each.message for each in stops)


@pytest.mark.parametrize("share", [1.5, 0, -0.2])
def test_a_share_that_is_none_is_named_where_the_inventory_has_it(share: float) -> None:
    with pytest.raises(InventoryError) as refusal:
        bound(gpu_memory_utilization=share)
    assert "targets.qwen.overrides.gpu_memory_utilization" in str(refusal.value)


@pytest.mark.parametrize("text", [VLLM, SGLANG, LLAMACPP])
def test_a_context_of_no_token_is_refused(text: str) -> None:
    with pytest.raises(InventoryError, match=r"targets\.qwen\.overrides\.max_model_len"):
        bound(text, max_model_len=0)
    bound(text, max_model_len=65536)
