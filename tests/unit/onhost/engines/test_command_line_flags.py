"""A command line is read on both sides by one reader."""

from __future__ import annotations

from lockstep.onhost.engines import ENGINES


def test_of_equal_flags_the_last_one_counts_and_a_flag_alone_has_no_value() -> None:
    vllm, argv = ENGINES["vllm"], ("--port", "1", "-tp", "2", "--port=3", "--enforce-eager", "-O3")
    assert [vllm.value(argv, key) for key in ("port", "tensor_parallel")] == ["3", "2"]
    assert vllm.value(argv, "enforce_eager") == "" and vllm.value(argv, "seed") is None
