"""How busy an engine is, from its own metrics: requests outstanding, and whether anything moves."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lockstep.onhost.core import common
from lockstep.onhost.engine import openai_api

# Names of vLLM 0.32 and SGLang 0.5.23 (read in their sources, 2026-11).
_OUTSTANDING = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
)
# What grows with every step of an engine; the share of the KV cache also while a long prompt is
# read and no token comes yet.
_MOVING = (
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:kv_cache_usage_perc",
    "vllm:request_success_total",
    "sglang:prompt_tokens_total",
    "sglang:generation_tokens_total",
    "sglang:token_usage",
    "sglang:num_requests_total",
)
_LINE = re.compile(r"^([a-z:_]+)(\{.*\})? ([-+.\deE]+)(?: \d+)?$", re.MULTILINE)
# That somebody gave up waiting, the watch itself perhaps, is no sign of life.
_GIVEN_UP = 'finished_reason="abort"'


@dataclass(frozen=True)
class Load:
    """One look: requests running and waiting, and the counters by name."""

    outstanding: int
    counters: dict[str, float]


def parse(text: str) -> Load | None:
    """Read Prometheus text; None when it is not an engine's."""
    sums: dict[str, float] = {}
    for name, labels, value in _LINE.findall(text):
        if name in _OUTSTANDING or (name in _MOVING and _GIVEN_UP not in labels):
            sums[name] = sums.get(name, 0.0) + float(value)
    counters = {name: sums[name] for name in _MOVING if name in sums}
    if not counters:
        return None
    return Load(int(sum(sums.get(name, 0.0) for name in _OUTSTANDING)), counters)


def ask(target: common.Target, key: str | None, timeout: float = 10.0) -> Load | None:
    """The engine's load, None where it publishes no metrics. NotReady when it does not answer."""
    try:
        return parse(openai_api.metrics(target, key, timeout))
    except openai_api.Refused:
        return None
