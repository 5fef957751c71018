"""What an engine counts about itself, from its Prometheus page.

Names of vLLM 0.32 and SGLang 0.5.23 (read in their sources, 2026-11).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"^([a-z_]+:[a-z_]+)(\{[^\n]*\})? ([-+.\deE]+|NaN|[+-]?Inf)(?: \d+)?$", re.M)
_FINISHED = ("vllm:request_success_total", "sglang:num_requests_total")
_GENERATED = ("vllm:generation_tokens_total", "sglang:generation_tokens_total")
_OUTSTANDING = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
)
_CACHED = ("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total")
_DRAFTS = ("vllm:spec_decode_num_drafts_total",)
_DRAFTED = ("vllm:spec_decode_num_draft_tokens_total",)
_ACCEPTED = ("vllm:spec_decode_num_accepted_tokens_total",)
_STEP = ("sglang:spec_accept_length",)


@dataclass(frozen=True)
class Counters:
    """One look. None: this engine does not publish it.

    Attributes:
        finished: Requests that were answered, since the engine's start.
        outstanding: Requests running and waiting now.
        generated: Tokens generated, since the engine's start.
        cached: Prompt tokens that the prefix cache answered.
        drafts: Steps for which tokens were drafted.
        drafted: Tokens drafted.
        accepted: Drafted tokens that were accepted.
        tokens_per_step: Gauge of tokens per step, where an engine has no totals (SGLang).
    """

    finished: int
    outstanding: int
    generated: int | None = None
    cached: int | None = None
    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    tokens_per_step: float | None = None


def parse(text: str | None) -> Counters | None:
    """Read the page; None where it is not an engine's."""
    sums: dict[str, float] = {}
    for name, _, value in _LINE.findall(text or ""):
        number = float(value)
        if number == number and abs(number) != float("inf"):
            sums[name] = sums.get(name, 0.0) + number

    def total(names: tuple[str, ...]) -> int | None:
        found = [sums[name] for name in names if name in sums]
        return int(sum(found)) if found else None

    finished = total(_FINISHED)
    if finished is None:
        return None
    return Counters(
        finished=finished,
        outstanding=total(_OUTSTANDING) or 0,
        generated=total(_GENERATED),
        cached=total(_CACHED),
        drafts=total(_DRAFTS),
        drafted=total(_DRAFTED),
        accepted=total(_ACCEPTED),
        tokens_per_step=next((sums[name] for name in _STEP if name in sums), None),
    )


@dataclass(frozen=True)
class Speculation:
    """What drafting brought between two looks.

    Attributes:
        drafted: Tokens drafted; None where the engine has no totals.
        accepted: Of these, tokens accepted.
        acceptance: Share of drafted tokens that were accepted (0 to 1).
        tokens_per_step: Tokens per step of the large model, its own one included.
    """

    drafted: int | None
    accepted: int | None
    acceptance: float | None
    tokens_per_step: float | None


def speculation(before: Counters, after: Counters) -> Speculation | None:
    """None where nothing was drafted, or the engine does not say."""
    if None in (before.drafted, after.drafted, before.drafts, after.drafts):
        step = after.tokens_per_step
        return Speculation(None, None, None, step) if step else None
    drafted = (after.drafted or 0) - (before.drafted or 0)
    accepted = (after.accepted or 0) - (before.accepted or 0)
    steps = (after.drafts or 0) - (before.drafts or 0)
    if drafted <= 0 or steps <= 0:
        return None
    return Speculation(drafted, accepted, accepted / drafted, 1 + accepted / steps)
