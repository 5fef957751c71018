"""What a Spark does now, for its page and for `lockstep status`.

It is `switch.sh status` without what costs the engine a token or needs root, and beside that the
engine's counters, the GPU, the disk, the last switches and the last diff. Nothing is looked at
while nobody asks.
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
from lockstep.onhost.core import clock, config, layout, meminfo, switch_lock
from lockstep.onhost.engine import openai_api
from lockstep.onhost.operator import status
from lockstep.onhost.records import last_diff, switches
from lockstep.onhost.switching import switch_job
from lockstep.onhost.system import gpu

FRESH_S = 1.0  #: Seconds for which an answer is given again.
_GPU_S = 2.0  # Asking the driver takes a GB10 a part of a second, and asks it to wake.
# An older look at the counters tells nothing of now.
_RATE_S = 10.0
_METRICS_TIMEOUT_S = 2.0
_PATIENCE_S = 1.5  # What takes longer is told at the next look.

T = TypeVar("T")


class _Apart(Generic[T]):
    """Looks in a thread of its own, so that a driver or an engine that hangs holds nobody up."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._thread: threading.Thread | None = None
        self._found: tuple[float, T] | None = None

    def last(self, look: Callable[[], T]) -> T | None:
        """What the newest look found; None where that is old, because one does not come back."""
        found, now = self._found, clock.now()
        if found and now - found[0] < self._every_s:
            return found[1]
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look, args=(look,), daemon=True)
            self._thread.start()
        self._thread.join(_PATIENCE_S)
        found = self._found
        return found[1] if found and now - found[0] < self._every_s + _PATIENCE_S else None

    def _look(self, look: Callable[[], T]) -> None:
        found = look()
        self._found = clock.now(), found


@dataclass(frozen=True)
class _Counted:
    """Counters of one process at one moment (s of the monotonic clock)."""

    at: float
    since: float | None
    counters: engines.Counters


@dataclass
class Facts:
    """The facts of one host; `now` may be called by any thread.

    `look` is another way to look at the GPU than a program for each look.
    """

    host: config.Host
    paths: layout.Paths
    look: Callable[[], gpu.Reading] | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)
    _kept: tuple[float, dict[str, Any]] | None = field(default=None, init=False)
    _counted: _Counted | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._gpu = _Apart[gpu.Reading](_GPU_S)
        self._counters = _Apart["engines.Counters | None"](0.0)

    def now(self) -> dict[str, Any]:
        """The facts as JSON, at most a second old.

        What `switch.sh status --json` has ("ready" of a target is null), and: "at" (Unix time, s),
        "phase" of a running switch, "engine" {"tok_s", "requests"}, "gpu" {"temperature_c",
        "clock_mhz", "power_w", "utilization", "held_down_by"}, "disk" {"path", "total_gib",
        "free_gib"}, "switches" (newest first), "diff" of this host. null: it cannot be told.
        """
        with self._turn:
            if self._kept is None or clock.now() - self._kept[0] >= FRESH_S:
                found = self._look()
                self._kept = clock.now(), found
            return self._kept[1]

    def _look(self) -> dict[str, Any]:
        found = status.gather(self.host, self.paths, closely=False)
        return {
            **status.as_json(found),
            "at": round(time.time(), 1),
            "phase": self._phase(found.switching),
            "engine": self._engine(found),
            "gpu": _shown(self._gpu.last(self.look or gpu.look)),
            "disk": _disk(self.paths),
            "switches": [asdict(each) for each in switches.load(self.paths)],
            "diff": last_diff.load(self.paths),
        }

    def _phase(self, holder: switch_lock.Holder | None) -> str | None:
        """The last words of the switch that is under way here."""
        log = switch_job.log_file(self.paths)
        try:
            # A switch that another member of a cluster was asked for has its words there.
            if holder is None or log.stat().st_mtime < holder.since - 1:
                return None
            said = log.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            return None
        return next((line.strip() for line in reversed(said) if line.strip()), None)

    def _engine(self, found: status.Status) -> dict[str, Any] | None:
        """Requests under way and waiting, and tok/s of all together since the look before."""
        hot = self.host.targets[found.hot] if found.hot else None
        if hot is None or not (hot.engine_url or hot.url):
            self._counted = None
            return None
        # The engine itself asks for no key.
        counters = self._counters.last(lambda: _counters(hot.itself))
        since = next(each.since for each in found.targets if each.name == found.hot)
        before, self._counted = self._counted, None
        if counters is None:
            return None
        now = self._counted = _Counted(clock.now(), since, counters)
        return {"tok_s": _rate(before, now), "requests": counters.outstanding}


def _counters(target: config.Target) -> engines.Counters | None:
    try:
        return openai_api.counters(target, None, _METRICS_TIMEOUT_S)
    except openai_api.NotReady:
        return None


def _rate(before: _Counted | None, now: _Counted) -> float | None:
    counted = now.counters
    if counted.rate is not None:
        # The gauge keeps what it said last.
        return round(counted.rate, 1) if counted.outstanding else 0.0
    if before is None or before.since != now.since or now.at - before.at > _RATE_S:
        return None
    if counted.generated is None or before.counters.generated is None:
        return None
    return round((counted.generated - before.counters.generated) / (now.at - before.at), 1)


def _shown(seen: gpu.Reading | None) -> dict[str, Any] | None:
    if seen is None or seen == gpu.Reading():
        return None
    found = asdict(seen)
    del found["reasons"]
    return {**found, "held_down_by": seen.heat}


def _disk(paths: layout.Paths) -> dict[str, Any] | None:
    """Of the file system with the weights."""
    try:
        folder = Path(json.loads(paths.weights.read_text(encoding="utf-8"))["cache_dir"])
        there = next(each for each in (folder, *folder.parents) if each.exists())
        used = shutil.disk_usage(there)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    total, free = (round(size / meminfo.GIB, 1) for size in (used.total, used.free))
    return {"path": str(folder), "total_gib": total, "free_gib": free}
