"""Checks for requests known to end an engine or to take all of its memory.

Each limit names its source. An engine that checks by itself refuses the same requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal
from lockstep.onhost.gateway.wire.request_fields import ModelFields

#: Log-probabilities of one token: OpenAI's limit and vLLM's default. More than the vocabulary ends
#: SGLang's scheduler (sglang issue 40076, pull request 36856), and those of a prompt may take tens
#: of GiB (local-inference-lab/vllm issue 264).
LOGPROBS = 20
#: Answers to one prompt: OpenAI's limit. SGLang 0.5 made an object for each of five million until
#: the host's memory was full (sglang pull request 36856).
ANSWERS = 128
#: Above every token id: the largest vocabulary known has 262,208 (Gemma 3). Beyond the vocabulary,
#: a GPU's kernel ends the engine: vllm issue 54195 and pull request 16529, sglang pull requests
#: 27398 and 36856.
TOKENS = 2**19


def refuse_dangerous_fields(fields: ModelFields) -> None:
    """Refuse a request that may end an engine. `GatewayRefusal` says which key, and its limit."""
    for key in ("top_logprobs", "logprobs", "prompt_logprobs"):
        _require_between(key, getattr(fields, key), 0, LOGPROBS)
    for key in ("n", "best_of"):
        _require_between(key, getattr(fields, key), 1, ANSWERS)
    if fields.stop_token_ids and ((fields.min_tokens or 0) > 0 or (fields.min_new_tokens or 0) > 0):
        # They are an index on the GPU only with a minimum of tokens. The model's ids are not known
        # here.
        raise _refusal_of_key(
            "stop_token_ids beside min_tokens", "ends engines where an id is unknown"
        )
    for key in ("stop_token_ids", "allowed_token_ids", "prompt", "input", "tokens"):
        _require_token_ids(key, getattr(fields, key))
    bias = fields.logit_bias
    # llama.cpp takes pairs, too.
    _require_token_ids(
        "logit_bias",
        [p[:1] for p in bias if isinstance(p, list)] if isinstance(bias, list) else bias,
    )
    if fields.kv_transfer_params is not None:
        # Its sizes are unbounded (vllm pull request 51137). Only engines send it to each other.
        raise _refusal_of_key("kv_transfer_params", "is for engines that share their work")


def _require_between(key: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise _refusal_of_key(
            key, f"must be {least} to {most}: more can end the engine for everybody"
        )


def _require_token_ids(key: str, value: Any) -> None:
    ids: Iterable[Any] = value if isinstance(value, list) else ()
    if isinstance(value, Mapping):
        ids = [int(name) if name.lstrip("-").isdecimal() else 0 for name in value]
    for token_id in ids:
        if isinstance(token_id, list):
            _require_token_ids(key, token_id)
        elif isinstance(token_id, int) and not 0 <= token_id < TOKENS:
            raise _refusal_of_key(key, f"has an id of a token that is not 0 to {TOKENS - 1}")


def _refusal_of_key(key: str, why: str) -> GatewayRefusal:
    return GatewayRefusal(400, f"{key} {why}", "engine")
