"""Tokens as answers tell them, in the forms of each API."""

import pytest

from lockstep.onhost.gateway.request_counters import NOW_S, Counts, usage_in
from lockstep.onhost.gateway.usage_totals import Usage


@pytest.mark.parametrize(
    ("tail", "tokens"),
    [
        (b'..."usage":{"prompt_tokens":7,"total_tokens":47,"completion_tokens":40}}', (7, 40)),
        (b'data: {"usage": {"prompt_tokens": 7, "completion_tokens": 40}}\n\ndata: [D', (7, 40)),
        # Chunks before the last one have none.
        (b'"usage":null} "usage":{"prompt_tokens":7,"completion_tokens":1}', (7, 1)),
        (b'event: message_delta\ndata: {"usage":{"input_tokens":9,"output_tokens":3}}', (9, 3)),
        (b'"usage":{"input_tokens":9,"output_tokens_details":{"x":1},"output_tokens":3}}', (9, 3)),
        (b'"usage":{"prompt_tokens":"many","completion_tokens":true}', (0, 0)),
        (b'"usage":{"prompt_tokens":7,', (0, 0)),
        (b'"usage":' + b"[" * 3000, (0, 0)),
        (b"\xff\x00", (0, 0)),
        (b"", (0, 0)),
    ],
)
def test_usage_at_the_end_of_an_answer(tail, tokens):
    assert usage_in(tail) == tokens


def test_people_of_now_are_those_who_ask_or_have_asked_a_moment_ago(tmp_path):
    now = [0.0]
    counts = Counts(Usage(tmp_path / "usage.json"), lambda: now[0])
    with counts.mark_person_active("anna"), counts.mark_person_active("anna"):
        with counts.mark_person_active("bob"):
            assert counts.page_figures()["people"] == 2
        # Bob is gone, and Anna still waits for her answer.
        now[0] = NOW_S + 1
        assert counts.page_figures()["people"] == 1
    assert counts.page_figures()["people"] == 1
    now[0] += NOW_S + 1
    assert counts.page_figures()["people"] == 0
