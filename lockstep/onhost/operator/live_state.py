"""The present state of a Spark, for its page and for `lockstep status`.

It is `switch.sh status` without parts that cost the engine a token or need root. It adds the
engine's counters, the GPU, the disk, the last switches and the last diff. Nothing is queried while
nobody asks.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from lockstep.onhost import engines
from lockstep.onhost.core import clock, config, event_lines, layout, switch_lock, unified_memory
from lockstep.onhost.engine import openai_api
from lockstep.onhost.operator import status
from lockstep.onhost.records import last_diff, switch_history
from lockstep.onhost.switching import switch_commands
from lockstep.onhost.system import gpu_sensors

FRESH_S = 1.0  #: Seconds for which an answer is reused.
_GPU_S = 2.0  # A query of the driver takes a GB10 a fraction of a second, and asks it to wake.
# Older counters say nothing about the present rate.
_RATE_S = 10.0
_METRICS_TIMEOUT_S = 2.0
_PATIENCE_S = 1.5  # Slower results are shown at the next look.

T = TypeVar("T")


class _BackgroundLook(Generic[T]):
    """A thread of its own for looks, so that a hanging driver or engine delays nobody."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._thread: threading.Thread | None = None
        self._last_answer: tuple[float, T] | None = None

    def newest_result(self, look: Callable[[], T]) -> T | None:
        """Return the newest look's result; None if it is outdated because a look hangs."""
        last_answer, now = self._last_answer, clock.now()
        if last_answer and now - last_answer[0] < self._every_s:
            return last_answer[1]
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._store_look, args=(look,), daemon=True)
            self._thread.start()
        self._thread.join(_PATIENCE_S)
        last_answer = self._last_answer
        return (
            last_answer[1]
            if last_answer and now - last_answer[0] < self._every_s + _PATIENCE_S
            else None
        )

    def _store_look(self, look: Callable[[], T]) -> None:
        answer = look()
        self._last_answer = clock.now(), answer


@dataclass(frozen=True)
class _CounterLook:
    """Counters of one process at one moment (s of the monotonic clock)."""

    at: float
    since: float | None
    counters: engines.Counters


@dataclass
class Facts:
    """The facts of one host; `facts_now` may be called by any thread.

    `look` replaces the program that reads the GPU at each look.
    """

    host: config.HostConfig
    paths: layout.Paths
    look: Callable[[], gpu_sensors.GpuReading] | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)
    _cached_facts: tuple[float, dict[str, Any]] | None = field(default=None, init=False)
    _last_counters: _CounterLook | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._gpu = _BackgroundLook[gpu_sensors.GpuReading](_GPU_S)
        self._counters = _BackgroundLook["engines.Counters | None"](0.0)

    def facts_now(self) -> dict[str, Any]:
        """Return the facts as JSON, at most a second old.

        The result has the keys of `switch.sh status --json` ("ready" of a model is null), and:
        "at" (Unix time, s), "phase" of a running switch, "engine" {"tok_s", "requests"}, "gpu"
        {"temperature_c", "clock_mhz", "power_w", "utilization", "held_down_by"}, "disk" {"path",
        "total_gib", "free_gib"}, "switches" (newest first), "diff" of this host. Unknown values are
        null.
        """
        with self._turn:
            if self._cached_facts is None or clock.now() - self._cached_facts[0] >= FRESH_S:
                facts_now = self._gather_facts()
                self._cached_facts = clock.now(), facts_now
            return self._cached_facts[1]

    def _gather_facts(self) -> dict[str, Any]:
        host_status = status.query_status(self.host, self.paths, closely=False)
        return {
            **status.status_document(host_status),
            "at": round(time.time(), 1),
            "phase": self._switch_phase(host_status.switching),
            "engine": self._request_figures(host_status),
            "gpu": _gpu_document(self._gpu.newest_result(self.look or gpu_sensors.read_gpu)),
            "disk": _weights_disk(self.paths),
            "switches": [
                asdict(switch_record) for switch_record in switch_history.load(self.paths)
            ],
            "diff": last_diff.load(self.paths),
        }

    def _switch_phase(self, holder: switch_lock.LockHolder | None) -> str | None:
        """Return the last words of the switch that is under way here."""
        log = switch_commands.log_file(self.paths)
        try:
            # A switch that another member of the cluster began has its words there.
            if holder is None or log.stat().st_mtime < holder.since - 1:
                return None
            log_lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            return None
        last_line = next((line for line in reversed(log_lines) if line.strip()), None)
        return None if last_line is None else event_lines.read_event(last_line).strip()

    def _request_figures(self, host_status: status.Status) -> dict[str, Any] | None:
        """Return running and waiting requests, and their total tok/s since the previous look."""
        hot = self.host.models[host_status.hot] if host_status.hot else None
        if hot is None or not (hot.engine_url or hot.url):
            self._last_counters = None
            return None
        # The engine itself asks for no key.
        counters = self._counters.newest_result(lambda: _engine_counters(hot.at_engine_address))
        since = next(model.since for model in host_status.models if model.name == host_status.hot)
        earlier_look, self._last_counters = self._last_counters, None
        if counters is None:
            return None
        now = self._last_counters = _CounterLook(clock.now(), since, counters)
        return {"tok_s": _token_rate(earlier_look, now), "requests": counters.outstanding}


def _engine_counters(model: config.Model) -> engines.Counters | None:
    try:
        return openai_api.counters(model, None, _METRICS_TIMEOUT_S)
    except openai_api.NotReady:
        return None


def _token_rate(earlier_look: _CounterLook | None, now: _CounterLook) -> float | None:
    counters = now.counters
    if counters.rate is not None:
        # The engine's gauge keeps its last value when it is idle.
        return round(counters.rate, 1) if counters.outstanding else 0.0
    if (
        earlier_look is None
        or earlier_look.since != now.since
        or now.at - earlier_look.at > _RATE_S
    ):
        return None
    if counters.generated_tokens is None or earlier_look.counters.generated_tokens is None:
        return None
    return round(
        (counters.generated_tokens - earlier_look.counters.generated_tokens)
        / (now.at - earlier_look.at),
        1,
    )


def _gpu_document(reading: gpu_sensors.GpuReading | None) -> dict[str, Any] | None:
    if reading is None or reading == gpu_sensors.GpuReading():
        return None
    document = asdict(reading)
    del document["reasons"]
    return {**document, "held_down_by": reading.heat_causes}


def _weights_disk(paths: layout.Paths) -> dict[str, Any] | None:
    """Return the facts of the file system with the weights."""
    try:
        folder = Path(json.loads(paths.weights_list.read_text(encoding="utf-8"))["cache_dir"])
        existing_folder = next(
            target_path for target_path in (folder, *folder.parents) if target_path.exists()
        )
        usage = shutil.disk_usage(existing_folder)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    total, free = (round(size / unified_memory.GIB, 1) for size in (usage.total, usage.free))
    return {"path": str(folder), "total_gib": total, "free_gib": free}
