"""The caches of a configuration's layers, against vLLM's own classes and other independent sums.

``shapes.json`` has the default configurations of transformers and published ones, cut to what may
matter, with the cache of each layer: [bytes per token or "state", window or bytes, layers].
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from lockstep.checkpoints.architecture import Architecture, ArchitectureUnknown
from lockstep.checkpoints.configuration import from_config
from lockstep.checkpoints.step import ForwardStep, step_of
from lockstep.fit.pages import sequence_bytes
from lockstep.recipes.sizing import Serving

SHAPES = json.loads((Path(__file__).parent / "shapes.json").read_text())
LLAMA = {
    **{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 8},
    **{"num_key_value_heads": 8, "hidden_size": 1024, "vocab_size": 1},
}
MAMBA = {f"mamba_{key}": size for key, size in {"n_heads": 8, "d_head": 64, "d_state": 128}.items()}
MAMBA |= {"mamba_n_groups": 1, "mamba_d_conv": 4}
DELTA = dict.fromkeys(("linear_num_value_heads", "linear_num_key_heads"), 8)
DELTA |= {"linear_value_head_dim": 64, "linear_key_head_dim": 64}


def whole(value: Any) -> Any:
    """A configuration with its long lists, which the file has by their pattern or their runs."""
    if not isinstance(value, Mapping):
        return value
    if value.keys() == {"repeat", "to"}:
        return (value["repeat"] * value["to"])[: value["to"]]
    if value.keys() == {"runs"}:
        return [item for item, times in value["runs"] for _ in range(times)]
    return {key: whole(inner) for key, inner in value.items()}


def layer_counts(shapes: Architecture) -> Counter[tuple[Any, ...]]:
    """The caches of the layers in the file's form.

    vLLM keeps an index apart, and states on a CPU in float32.
    """
    counts: Counter[tuple[Any, ...]] = Counter()
    for group in shapes.layers:
        if group.kind == "recurrent":
            counts["state", replace(group, state_bytes=4).state_page(1)] += group.count
            continue
        total_bytes = group.token_bytes(2, 1)
        has_index = total_bytes > group.index > 0
        apart = (total_bytes - group.index, group.index) if has_index else (total_bytes,)
        for part, window in zip(apart, (group.window, 0), strict=False):
            counts[round(part, 4), window] += group.count
    return counts


def wrong(case: Mapping[str, Any]) -> str:
    """The difference of a reading from the right value; "" where it is below 0.5 %."""
    try:
        counts = layer_counts(from_config(whole(case["config"]), "config.json"))
    except ArchitectureUnknown as fault:
        message, reason = str(fault), case.get("unknown", "nothing").removeprefix("no ")
        return "" if reason in message else message
    right = next((case[key] for key in ("vllm", "formula", "read", "kept") if key in case), None)
    if right is None:
        return "" if "sequences" in case else f"read, and is not known: {counts}"
    expected_counts = [((size, window), count) for size, window, count in right]
    for (size, window), count in expected_counts:
        near = (near for near in counts if near[0] == size or is_near(near[0], size))
        match = next((key for key in near if is_near(key[1], window)), None)
        if match is None or counts.pop(match) != count:
            return f"{match}, not {count} of {size}, {window}"
    return f"also {counts}" if counts else ""


def is_near(figure: Any, reference: Any) -> bool:
    """Tell whether two figures differ by less than 0.5 %."""
    return str not in (type(figure), type(reference)) and figure == approx(reference, rel=0.005)


def test_most_is_read_and_none_is_wrong_without_a_word() -> None:
    for part in ("classes", "published"):
        differences = {name: wrong(case) for name, case in SHAPES[part].items()}
        assert {name: difference for name, difference in differences.items() if difference} == {}
    names = {name: len(name.split(", ")) for name in SHAPES["classes"]}
    read = [name for name, case in SHAPES["classes"].items() if "unknown" not in case]
    assert (sum(names[name] for name in read), sum(names.values())) == (365, 486)
    assert sum(len(names_.split()) for names_ in SHAPES["no_language_model"].values()) == 360


@pytest.mark.parametrize("key", SHAPES["no_language_model"])
def test_what_is_no_language_model_is_not_read(key: str) -> None:
    config = {**LLAMA, "model_type": "of sight", key: 16}
    del config["num_key_value_heads"]
    if key == "vocab_size":
        del config[key]
    with pytest.raises(ArchitectureUnknown, match=key):
        from_config(config, "config.json")


SEQUENCES = [
    (name, *sequence)
    for name, case in SHAPES["published"].items()
    for sequence in case.get("sequences", ())
]


@pytest.mark.parametrize(("name", "context", "serving", "bytes_"), SEQUENCES)
def test_one_sequence_takes_what_vllm_said(name, context, serving, bytes_) -> None:
    """Within 0.4 %, as two decimals of "Maximum concurrency" are; its own functions to the byte."""
    shapes = from_config(whole(SHAPES["published"][name]["config"]), name)
    needed_bytes = sequence_bytes(shapes.layers, context, Serving(**serving))
    assert needed_bytes == (bytes_ if isinstance(bytes_, int) else approx(bytes_, rel=0.004))


@pytest.mark.parametrize(
    "key",
    [
        *("compress_ratios_v2", "index_width", "sliding_window_pattern_v2", "foo_kv_layers"),
        *("recurrent_width", "loop_count", "mamba_d_new", "swa_ratio", "cla_share_factor"),
        *("retained_tokens", "cache_compression", "attention_other_setting"),
    ],
)
def test_a_key_that_may_change_the_cache_makes_it_unknown_by_name(key: str) -> None:
    assert from_config(LLAMA, "config.json").layers
    more = {"use_cla": True} if key.startswith("cla") else {}
    with pytest.raises(ArchitectureUnknown, match=key):
        from_config({**LLAMA, **more, key: 4}, "config.json")
    # What is not set changes nothing.
    assert from_config({**LLAMA, key: None}, "config.json").layers


def test_a_state_has_the_bytes_that_vllm_gives_it() -> None:
    for config, bytes_ in (
        ({"model_type": "granitemoehybrid", **MAMBA}, 2),
        ({"model_type": "nemotron_h", **MAMBA}, 4),
        ({"model_type": "nemotron_h", "mamba_ssm_cache_dtype": "bfloat16", **MAMBA}, 2),
        ({"model_type": "qwen3_next", **DELTA}, 2),
        ({"model_type": "qwen3_5_text", "mamba_ssm_dtype": "float32", **DELTA}, 4),
        ({"model_type": "kimi_linear", "linear_num_heads": 8, "linear_head_dim": 64}, 4),
    ):
        shapes = from_config({**LLAMA, "layer_types": ["linear_attention"] * 2, **config}, "")
        assert [(group.state_bytes, group.conv > 0) for group in shapes.layers] == [(bytes_, True)]


def test_what_makes_no_sense_is_unknown_and_no_crash() -> None:
    for broken_configuration in (
        {"layer_types": ["full_attention"]},
        {"num_hidden_layers": 10**9},
        {"layer_types": ["full_attention", "new_attention"]},
        {"kv_lora_rank": 512, "qk_rope_head_dim": "64"},
        {"num_kv_shared_layers": 1, "num_hidden_layers": "2"},
        {"num_key_value_heads": "8"},
        {"per_layer_config": [1]},
        {"sliding_window": [None], "layer_types": ["sliding_attention"] * 2},
        {"sliding_window": 4096, "model_type": "of tomorrow"},
        {"linear_attn_config": {"kda_layers": [1], "full_attn_layers": [1]}},
    ):
        with pytest.raises(ArchitectureUnknown):
            from_config({**LLAMA, **broken_configuration}, "config.json")


PLAIN = {"hidden_size": 64, "intermediate_size": 128}


def test_a_size_or_a_layer_that_was_not_read_gives_no_step() -> None:
    for sizes in (
        {"hidden_size": None},
        {"intermediate_size": None},
        {"altup_num_inputs": 4},
        {"index_topk": 2048},
        {"mamba_dt_rank": 8},
        {"num_experts": 8},
        {"layer_types": ["linear_attention", "full_attention"]},
    ):
        assert step_of({}, PLAIN) == ForwardStep(3 * 128 + 3 * 64, 3 * 128 + 2 * 64)
        assert step_of({}, {**PLAIN, **sizes}) is None


def test_tables_of_positions_are_loaded_and_in_no_file() -> None:
    usual = {**PLAIN, "num_hidden_layers": 1, "max_position_embeddings": 100}
    usual |= {"num_attention_heads": 8, "num_key_value_heads": 8}
    for rope, elements in (
        ({}, 800),
        ({"rope_scaling": {"mrope_section": [1, 1, 2]}}, 3200),
        ({"rope_local_base_freq": 1e4}, 1600),
    ):
        assert step_of({}, {**usual, **rope}).loaded_elements == elements
