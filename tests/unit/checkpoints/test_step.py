"""A configuration's figures of the step; test_profile holds the sums against starts."""

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
