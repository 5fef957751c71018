"""Two rulers on one engine: what counts, and when they agree."""

from dataclasses import make_dataclass
from typing import Any

import pytest

from benchmarks.side_by_side import EngineTotals, Row, engine_totals, own_warm_up, ratios, row


def test_an_answer_that_came_at_once_has_no_first_token() -> None:
    measured_row = row("ours", 1, [(101, 0.5, 1.5), (101, 1.0, 1.1)], 90.0, [])
    assert measured_row.first_s == (0.5,)
    assert measured_row.decode_tok_s == (100.0,)
    assert measured_row.whole_tok_s == pytest.approx((101 / 1.5, 101 / 1.1))
    assert measured_row.at_once == 1


def rows(side: str, *totals: float) -> list[Row]:
    return [Row(side, 8, total_tok_s=float(total)) for total in totals]


def test_rulers_agree_where_their_middle_halves_overlap() -> None:
    [alike] = ratios([*rows("ours", 99, 100, 101), *rows("theirs", 100, 101, 102)])
    assert (alike.name, alike.streams, alike.agree) == ("total_tok_s", 8, True)
    assert alike.ratio == pytest.approx(100 / 101)
    [apart] = ratios([*rows("ours", 99, 100, 101), *rows("theirs", 110, 111, 112)])
    assert not apart.agree


def test_one_sample_has_no_spread_and_no_ratio() -> None:
    assert ratios([*rows("ours", 99), *rows("theirs", 110)]) == []


METRICS = """# HELP vllm:e2e_request_latency_seconds Histogram of e2e request latency in seconds.
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.3",model_name="m"} 1.0
vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 66.0
vllm:e2e_request_latency_seconds_sum{engine="0",model_name="m"} 131.5
vllm:generation_tokens_total{engine="0",model_name="m"} 16640.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
"""


def test_the_engine_is_a_third_witness() -> None:
    engine = engine_totals(METRICS).since(EngineTotals(64, 128.0, 16128.0))
    assert engine == EngineTotals(2, 3.5, 512.0)
    measured_row = row("ours", 2, [(256, 0.5, 1.8), (256, 0.5, 1.77)], 290.0, [], engine)
    assert measured_row.over_engine == pytest.approx(3.57 / 3.5)
    assert measured_row.engine_tokens == 1.0


def test_an_engine_that_counted_other_requests_is_no_witness() -> None:
    measured_row = row("theirs", 1, [(256, 0.5, 1.8)], 290.0, [], EngineTotals(65, 117.0, 16640.0))
    assert (measured_row.over_engine, measured_row.engine_tokens) == (0.0, 0.0)
    names = {ratio.name for ratio in ratios([measured_row, measured_row, *rows("ours", 1, 2)])}
    assert "over_engine" not in names


def test_no_measured_prompt_is_in_the_prefix_cache_before_its_time() -> None:
    """vLLM's benchmark (0.26) warms up with the first measured prompt, once for each stream."""
    prompts: list[str] = []
    began: list[bool] = []

    def send(request_func_input: Any) -> None:
        prompts.append(request_func_input.prompt)

    ask = own_warm_up(send, began.copy)
    first = make_dataclass("RequestFuncInput", ["prompt"])("measured")
    ask(request_func_input=first)
    ask(request_func_input=first)
    began.append(True)
    ask(request_func_input=first)
    assert len(set(prompts)) == 3
    assert prompts.index("measured") == 2
