"""Requests that are known to end an engine, or to take all of its memory, for everybody.

Each bound names where it was seen. An engine that checks by itself refuses the same requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.onhost.gateway.wire.answers import Refused
from lockstep.onhost.gateway.wire.incoming import Asked

#: Log-probabilities of one token: OpenAI's bound and vLLM's default. More than the vocabulary ends
#: SGLang's scheduler (sglang issue 40076, pull request 36856), and those of a prompt may take tens
#: of GiB (local-inference-lab/vllm issue 264).
LOGPROBS = 20
#: Answers to one prompt: OpenAI's bound. SGLang 0.5 made an object for each of five million until
#: the host's memory was full (sglang pull request 36856).
ANSWERS = 128
#: Above every id of a token: the largest vocabulary known has 262,208 (Gemma 3). Beyond the
#: vocabulary, a GPU's kernel ends the engine: vllm issue 54195 and pull request 16529, sglang pull
#: requests 27398 and 36856.
TOKENS = 2**19


def check(asked: Asked) -> None:
    """Refuse what may end an engine. Refused says which key, and its bound."""
    for key in ("top_logprobs", "logprobs", "prompt_logprobs"):
        _between(key, getattr(asked, key), 0, LOGPROBS)
    for key in ("n", "best_of"):
        _between(key, getattr(asked, key), 1, ANSWERS)
    if asked.stop_token_ids and ((asked.min_tokens or 0) > 0 or (asked.min_new_tokens or 0) > 0):
        # Only with a least number of tokens are they an index on the GPU. Which ids the model has
        # is not known here.
        raise _refused("stop_token_ids beside min_tokens", "ends engines where an id is unknown")
    for key in ("stop_token_ids", "allowed_token_ids", "prompt", "input", "tokens"):
        _ids(key, getattr(asked, key))
    bias = asked.logit_bias
    # llama.cpp takes pairs, too.
    _ids(
        "logit_bias",
        [p[:1] for p in bias if isinstance(p, list)] if isinstance(bias, list) else bias,
    )
    if asked.kv_transfer_params is not None:
        # vllm pull request 51137: its sizes are not bounded. Only engines say it to each other.
        raise _refused("kv_transfer_params", "is for engines that share their work")


def _between(key: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise _refused(key, f"must be {least} to {most}: more can end the engine for everybody")


def _ids(key: str, value: Any) -> None:
    found: Iterable[Any] = value if isinstance(value, list) else ()
    if isinstance(value, Mapping):
        found = [int(name) if name.lstrip("-").isdecimal() else 0 for name in value]
    for each in found:
        if isinstance(each, list):
            _ids(key, each)
        elif isinstance(each, int) and not 0 <= each < TOKENS:
            raise _refused(key, f"has an id of a token that is not 0 to {TOKENS - 1}")


def _refused(key: str, why: str) -> Refused:
    return Refused(400, f"{key} {why}", "engine")
