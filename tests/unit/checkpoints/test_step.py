"""A configuration's figures of the step; test_profile holds the sums against starts."""

from __future__ import annotations

from lockstep.checkpoints.step import ForwardStep, step_of

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


def test_what_is_loaded_and_in_no_file() -> None:
    for quantisation, sizes, loaded_bytes in (
        ({}, {"max_position_embeddings": 100}, 800),
        ({}, {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 6400),
        ({}, {"rope_scaling": {"mrope_section": [1, 1, 2]}}, 3200),
        ({}, {"rope_local_base_freq": 1e4}, 1600),
        ({"quant_method": "awq", "zero_point": True, "group_size": 64}, {}, 800 + 480),
        ({"quant_method": "mxfp4"}, {"intermediate_size": 100, "num_experts": 4}, 800 + 5712),
    ):
        heads = {"num_attention_heads": 8, "num_key_value_heads": 8, "num_experts_per_tok": 1}
        usual = {"num_hidden_layers": 1, "max_position_embeddings": 100, **heads}
        step = step_of({"quantization_config": quantisation}, {**PLAIN, **usual, **sizes})
        assert step is not None
        assert step.loaded_elements == loaded_bytes
