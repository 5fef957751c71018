"""Messages of an engine's parser about a command line that it refuses."""

from __future__ import annotations

import pytest

from lockstep.onhost.engines.engine_parser import refusal

USAGE = "usage: vllm serve [model_tag] [options]\n"


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (
            f"{USAGE}vllm: error: unrecognized arguments: --no-such 3\n",
            "vllm: error: unrecognized arguments: --no-such 3",
        ),
        # As vLLM 0.32.0 wrote it.
        (
            f"""{USAGE}vllm serve: error: argument --structured-outputs-config: 1 validation error \
for StructuredOutputsConfig
  Value error, disable_any_whitespace is only supported for xgrammar and guidance backends. \
[type=value_error, input_value={{'disable_any_whitespace': True}}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.14/v/value_error
""",
            "vllm serve: error: argument --structured-outputs-config: 1 validation error for "
            "StructuredOutputsConfig Value error, disable_any_whitespace is only supported for "
            "xgrammar and guidance backends.",
        ),
        ("something\n\nelse\n", "else"),
        ("", "no reason given"),
    ],
)
def test_a_refusal_is_one_line_with_its_reason(output: str, why: str) -> None:
    assert refusal(output) == why
