"""Every override reaches all who read what it is about, or is refused with what to do instead."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from lockstep.core.errors import InventoryError
from lockstep.fit import catalogue
from lockstep.fit.recipe_checks import check
from lockstep.inventory.bound_models import BoundModel, bind
from lockstep.inventory.settings import ModelData, Settings
from lockstep.lock.lock_items import wanted_items
from lockstep.lock.pins import CheckpointPin, ImagePin, Pins
from lockstep.recipes.recipe_file import parse
from lockstep.recipes.sizing import serving
from lockstep.units.model_variants import variants

VLLM = """
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
OTHER = """
model: org/model{quant}
runtime: {runtime}
container: ghcr.io/a/b:main
defaults: {{port: 8000}}
lockstep: {{moe: true}}
"""
SGLANG = OTHER.format(quant="", runtime="sglang")
LLAMACPP = OTHER.format(quant=":Q4", runtime="llama-cpp")
CATALOGUE = catalogue.load()
OTHER_DRAFT = {"method": "dflash", "model": "org/other"}
PINS = Pins(
    images={"ghcr.io/a/b:main": ImagePin("sha256:" + "1" * 64, "aarch64", 1)},
    checkpoints={name: CheckpointPin("main", "a" * 40, ()) for name in ("org/model", "org/draft")},
)


def bound_model(text: str = VLLM, cluster: str | None = None, **overrides: Any) -> BoundModel:
    data = ModelData(recipe="main", unit="engine", overrides=overrides, cluster=cluster)
    settings = Settings(name="spark", models={"qwen": data})
    recipes = {**CATALOGUE.recipes, "main": parse(text, Path("main.yaml"))}
    (model,) = bind(settings, recipes, {})
    return model


def refusal(
    text: str, key: str, value: object = "x", cluster: str | None = None
) -> tuple[str, str]:
    """Summary and remedy of the refusal of an override."""
    with pytest.raises(InventoryError) as error:
        bound_model(text, cluster, **{key: value})
    place = f"models.qwen.overrides.{key}"
    assert error.value.summary.startswith(place)
    return error.value.summary.removeprefix(place), error.value.remedy


FETCHED = ": an override cannot change what is fetched"
SAID = " is said by the recipe alone"


@pytest.mark.parametrize(
    ("text", "keys", "summary"),
    [
        (VLLM, "model revision draft_model draft_revision download_dir", FETCHED),
        (SGLANG, "model_path model-path speculative_draft_model_path", FETCHED),
        (LLAMACPP, "hf_repo model", FETCHED),
        (VLLM, "env command executor_config lockstep moe licence draft runtime", SAID),
    ],
)
def test_what_is_fetched_or_no_flag_is_the_recipes_own_word(text: str, keys: str, summary: str):
    for key in keys.split():
        message, remedy = refusal(text, key)
        assert message == summary
        assert "copy main.yaml" in remedy and "models.qwen.recipe" in remedy


@pytest.mark.parametrize(("key", "own"), [("host", "bind"), ("container", "image")])
def test_what_the_model_says_has_one_place(key: str, own: str) -> None:
    assert refusal(VLLM, key)[1] == f"Set models.qwen.{own}."


@pytest.mark.parametrize("key", ["nnodes", "node_rank", "master_addr", "data_parallel_address"])
def test_what_a_cluster_decides_or_nobody_reads_is_to_be_removed(key: str) -> None:
    by_cluster = (": the cluster decides it for each rank", "Remove it.")
    assert refusal(VLLM, key, 3, cluster="pair") == by_cluster
    assert refusal(VLLM, "head_ip") == (" is no flag of an engine", "Remove it.")


def test_a_fallback_is_held_to_the_same() -> None:
    with pytest.raises(InventoryError, match=r"qwen\.fallback_overrides\.model_path"):
        with_fallback(fallback_overrides={"model_path": "org/other"})
    # It runs on another engine, and gets none of these.
    assert with_fallback(overrides={"enable_expert_parallel": True})


def with_fallback(**data: Any) -> tuple[BoundModel, ...]:
    model = ModelData(recipe="main", unit="engine", fallback="spare", **data)
    recipes = {"main": parse(VLLM, Path("main.yaml")), "spare": parse(SGLANG, Path("spare.yaml"))}
    return bind(Settings(name="spark", models={"qwen": model}), recipes, {})


@pytest.mark.parametrize(
    ("text", "slip", "right_flag"),
    [
        (VLLM, "gpu_memory_utilisation", "gpu_memory_utilization"),
        (VLLM, "max-modle-len", "max_model_len"),
        (SGLANG, "mem_fraction_statci", "mem_fraction_static"),
    ],
)
def test_a_slip_of_a_flag_is_refused_with_the_flag(text: str, slip: str, right_flag: str) -> None:
    summary, remedy = refusal(text, slip, 1)
    assert summary.startswith(" is no flag of ") and remedy == f"Did you mean {right_flag!r}?"


def test_a_beginning_of_a_flag_is_refused_with_the_flag():
    """The engine would take it, past every check of the whole flag."""
    expected = (" is the beginning of a flag", "Write gpu_memory_utilization.")
    assert refusal(VLLM, "gpu_memory", 1) == expected


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        # Flags of vLLM 0.32 and SGLang 0.5.9 that are nearest to known ones, and some of nobody's
        # list: the engine's own parser is asked about these.
        (VLLM, "mm_processor_cache_gb data_parallel_size_local mamba_ssm_cache_dtype"),
        (VLLM, "no_enable_flashinfer_autotune async-scheduling"),
        (SGLANG, "mm_attention_backend moe_data_parallel_size cuda_graph_max_bs dcp_size"),
        (LLAMACPP, "cache_type_v n_gpu_layers"),
    ],
)
def test_a_flag_that_nobody_listed_is_the_parsers_to_judge(text: str, keys: str) -> None:
    overrides = dict.fromkeys(keys.split(), 1)
    assert bound_model(text, **overrides).data.overrides == overrides


@pytest.mark.parametrize(
    "overrides",
    [
        {"max_model_len": 4096, "gpu_memory_utilization": 0.3, "max_num_seqs": 2},
        {"kv_cache_dtype": "fp8", "served_model_name": "mine", "tensor_parallel": 1},
        {"quantization": "fp8"},
    ],
)
def test_what_is_taken_is_in_lock_fit_and_unit(overrides: dict[str, Any]) -> None:
    model = bound_model(**overrides)
    settings = Settings(name="spark", models={"qwen": model.data})
    (variant,) = variants(settings, (model,), PINS, engine_id="0" * 12)
    pairs = list(itertools.pairwise(variant.engine_argv))
    for key, value in overrides.items():
        assert (model.recipe.engine.spellings(key)[0], str(value)) in pairs
    assert variant.served_model.served_name == model.served_name
    context = serving(model.recipe, model.overrides(model.recipe)).context
    assert variant.served_model.context == context
    # The lock asks for what the unit opens.
    items = wanted_items([(settings, (model,))])
    names = {item.key for item in items if item.section == "checkpoints"}
    assert names == {"org/model", "org/draft"}
    assert variant.engine_argv[2] == "org/model"
    # The guard is of the experts as they are loaded.
    guard = "marlin" if "quantization" in overrides else "triton"
    assert ("--moe-backend", guard) in pairs


def test_a_name_that_is_taken_away_leaves_the_models_own() -> None:
    model = bound_model(SGLANG, served_model_name=None)
    settings = Settings(name="spark", models={"qwen": model.data})
    (variant,) = variants(settings, (model,), PINS, engine_id="0" * 12)
    assert variant.served_model.served_name == model.served_name == "org/model"
    # SGLang is given a folder, and would call the model by it.
    assert ("--served-model-name", "org/model") in itertools.pairwise(variant.engine_argv)


@pytest.mark.parametrize(
    ("text", "key", "value", "own"),
    [
        (VLLM, "speculative_config", OTHER_DRAFT, {**OTHER_DRAFT, "model": "org/draft"}),
        (VLLM, "tokenizer", "org/other", "/data/mine"),
        (LLAMACPP, "mmproj", "mmproj-org-other.gguf", "/data/mine"),
    ],
)
def test_an_override_that_names_what_nobody_fetches_stops_the_deploy(text: str, key, value, own):
    def stops(name: Any) -> list[str]:
        model = bound_model(text, **{key: name})
        findings = check(model.recipe, CATALOGUE, overrides=model.overrides(model.recipe))
        return [item.severity for item in findings if item.code == "not-fetched"]

    assert stops(own) == []
    assert set(stops(value)) == {"error"}


@pytest.mark.parametrize("share", [1.5, 0])
def test_a_share_that_is_none_is_named_where_the_inventory_has_it(share: float) -> None:
    summary, _ = refusal(VLLM, "gpu_memory_utilization", share)
    assert summary == " must be a share of the memory"


@pytest.mark.parametrize("text", [VLLM, SGLANG, LLAMACPP])
def test_a_context_of_no_token_is_refused(text: str) -> None:
    assert refusal(text, "max_model_len", 0)[0] == " must be a number of tokens"
    bound_model(text, max_model_len=65536)
