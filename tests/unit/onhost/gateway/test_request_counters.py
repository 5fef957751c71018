"""Tokens as answers tell them, in the forms of each API."""

from __future__ import annotations

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
        (
            b'"usage":{"prompt_tokens":7,"completion_tokens":1} "usage":{"completion_tokens":2}',
            (7, 2),
        ),
        (b'event: message_delta\ndata: {"usage":{"input_tokens":9,"output_tokens":3}}', (9, 3)),
        (b'"usage":{"input_tokens":9,"output_tokens_details":{"x":1},"output_tokens":3}}', (9, 3)),
        (b'{"data":[],"usage":{"prompt_tokens":7,"total_tokens":7,"completion_tokens":0}}', (7, 0)),
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
        assert counts.page_figures()["people"] == 1
        with counts.mark_person_active("bob"):
            assert counts.page_figures()["people"] == 2
        now[0] = NOW_S - 1
        assert counts.page_figures()["people"] == 2
        # Bob is gone, and Anna still waits for her answer.
        now[0] = NOW_S + 1
        assert counts.page_figures()["people"] == 1
    now[0] += NOW_S + 1
    assert counts.page_figures()["people"] == 0


def test_the_speed_of_the_last_answer_is_after_its_first_byte_where_it_was_streamed(tmp_path):
    counts = Counts(Usage(tmp_path / "usage.json"))
    usage = b'"usage":{"completion_tokens":60}}'
    counts.count_tokens("anna", "qwen", b"{" + usage, 3.0, 0.0)
    counts.count_tokens("anna", "mistral", b"data: {}\n\ndata: {" + usage, 3.0, 2.0)
    assert counts.page_figures()["tok_s"] == {"qwen": 20.0, "mistral": 30.0}
    # Those without usage, and those that are too short, tell nothing.
    counts.count_tokens("anna", "qwen", b"{}", 3.0, 0.0)
    counts.count_tokens("anna", "qwen", b"{" + usage, 0.01, 0.0)
    assert counts.page_figures()["tok_s"]["qwen"] == 20.0
