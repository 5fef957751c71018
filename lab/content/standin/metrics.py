"""Counters and gauges under the names that the real engines publish."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class Counters:
    """Counters of the engine's work so far; safe to share among threads.

    ``answered_tokens`` excludes thoughts; ``scripts`` are the scripts of the running requests.
    """

    running: int = 0
    waiting: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    answered_tokens: int = 0
    requests: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    first_token_seconds: float = 0.0
    finished_requests: dict[str, int] = field(default_factory=dict)
    scripts: list[tuple[str, ...]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, **amounts: float) -> None:
        """Add to the counters of these names."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def count_answer_token(self) -> int:
        """Count one token of an answer; returns the number of tokens with this one."""
        with self._lock:
            self.answered_tokens += 1
            return self.answered_tokens

    def finish(self, reason: str) -> None:
        """Count one finished request."""
        with self._lock:
            self.finished_requests[reason] = self.finished_requests.get(reason, 0) + 1
            self.requests += 1


def vllm_metrics(counters: Counters, model: str, speculative: bool) -> str:
    """The text of vLLM's /metrics."""
    label = f'{{engine="0",model_name="{model}"}}'
    lines = [
        *_metric("vllm:num_requests_running", "gauge", label, counters.running),
        *_metric("vllm:num_requests_waiting", "gauge", label, counters.waiting),
        *_metric("vllm:kv_cache_usage_perc", "gauge", label, min(1.0, counters.running / 8)),
        *_metric("vllm:prompt_tokens_total", "counter", label, counters.prompt_tokens),
        *_metric("vllm:generation_tokens_total", "counter", label, counters.generated_tokens),
        *_histogram("vllm:time_to_first_token_seconds", label, counters),
        "# TYPE vllm:request_success_total counter",
    ]
    for reason in ("stop", "length", "abort"):
        count = counters.finished_requests.get(reason, 0)
        name = f'{{engine="0",finished_reason="{reason}",model_name="{model}"}}'
        lines.append(f"vllm:request_success_total{name} {count}")
    if speculative:
        prefix = "vllm:spec_decode_num"
        lines += _metric(f"{prefix}_drafts_total", "counter", label, counters.drafts)
        lines += _metric(f"{prefix}_draft_tokens_total", "counter", label, counters.draft_tokens)
        accepted_tokens = counters.accepted_tokens
        lines += _metric(f"{prefix}_accepted_tokens_total", "counter", label, accepted_tokens)
    return "\n".join(lines) + "\n"


def sglang_metrics(counters: Counters, model: str, speculative: bool, rate: float) -> str:
    """The text of SGLang's /metrics; `rate` in tokens per second of all requests."""
    label = f'{{model_name="{model}"}}'
    lines = [
        *_metric("sglang:num_running_reqs", "gauge", label, counters.running),
        *_metric("sglang:num_queue_reqs", "gauge", label, counters.waiting),
        *_metric("sglang:token_usage", "gauge", label, min(1.0, counters.running / 8)),
        *_metric("sglang:prompt_tokens_total", "counter", label, counters.prompt_tokens),
        *_metric("sglang:generation_tokens_total", "counter", label, counters.generated_tokens),
        *_metric("sglang:num_requests_total", "counter", label, counters.requests),
        *_metric("sglang:gen_throughput", "gauge", label, rate),
        *_histogram("sglang:time_to_first_token_seconds", label, counters),
    ]
    if speculative and counters.drafts:
        length = 1 + counters.accepted_tokens / counters.drafts
        lines += _metric("sglang:spec_accept_length", "gauge", label, round(length, 3))
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, label: str, value: float) -> list[str]:
    return [f"# TYPE {name} {kind}", f"{name}{label} {value}"]


def _histogram(name: str, label: str, counters: Counters) -> list[str]:
    return [
        f"# TYPE {name} histogram",
        f"{name}_count{label} {counters.requests}",
        f"{name}_sum{label} {counters.first_token_seconds:.6f}",
    ]
