"""Tokens as answers tell them, in the forms of each API."""

import pytest

from lockstep.onhost.gateway.request_counters import usage_in


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
