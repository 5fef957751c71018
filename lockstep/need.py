"""The least MemAvailable with which an engine starts, from its own arithmetic (`docs/fit.md`).

vLLM refuses below its share of all memory, before it loads anything. SGLang loads first, and ends
where its share of what it found at its start does not hold weights, draft and a KV cache.
"""

from __future__ import annotations

from lockstep.engine_names import Engine
from lockstep.models import Hardware
from lockstep.onhost.need import Need
from lockstep.serving import Serving

# What each engine takes where a recipe names no share. vLLM: 0.92 in 0.32.0 (config/cache.py),
# 0.9 in the fork; the larger asks for more. SGLang 0.5.23 (arg_groups/memory_hook.py) keeps 10 GiB
# at least, and takes 5 % less where the model reads images: 0.95 x (121.69 - 10) / 121.69.
DEFAULT_SHARE: dict[Engine, float] = {"vllm": 0.92, "sglang": 0.87}

# SGLang's cache for images, taken from the share before the KV cache: SGLANG_VLM_CACHE_SIZE_MB,
# 100 by default (environ.py of 0.5.23, read 2026-11-22).
MULTIMODAL_CACHE_GIB = 100 / 1024


def share_of(engine: Engine, asked: Serving) -> float:
    """The share that the engine works with."""
    return asked.utilization or DEFAULT_SHARE[engine]


def vllm(asked: Serving, machine: Hardware, weights: float | None, published: float | None) -> Need:
    """vLLM: its share of MemTotal (`request_memory`; a KV cache given in bytes changes nothing).

    A recipe that states what it holds and names no share, as one for vLLM's CPU build, is believed.
    """
    if asked.utilization is None and published is not None:
        return Need(published)
    start = machine.gib("engine_start_gib")
    fixed = published or 0.0
    if asked.kv_gib is not None and weights is not None:
        overhead = machine.gib("vllm_overhead_low_gib")
        fixed = max(fixed, start + weights + asked.kv_gib + overhead)
    return Need(fixed, share_of("vllm", asked), of_total=True, beside_gib=start)


def sglang(
    asked: Serving,
    machine: Hardware,
    weights: float | None,
    sequence: float,
    published: float | None,
) -> Need:
    """SGLang: its share of what it finds must hold weights, image cache and one sequence.

    Where nobody published the weights' size: what the share is on a Spark at rest.
    """
    start, share = machine.gib("engine_start_gib"), share_of("sglang", asked)
    if weights is not None:
        least = (weights + MULTIMODAL_CACHE_GIB + sequence) / share + start
    elif published is not None:
        least = published
    else:
        least = share * found_at_rest(machine) + start
    return Need(max(least, published or 0.0), share, beside_gib=start)


def found_at_rest(machine: Hardware) -> float:
    """GiB that an engine finds at its start on a Spark with nothing else to do."""
    taken = machine.gib("system_gib") + machine.gib("engine_start_gib")
    return machine.gib("memory_total_gib") - taken
