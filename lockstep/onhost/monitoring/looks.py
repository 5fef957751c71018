"""The slow looks: models, engines, guards, records, units and the certificate of a host."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lockstep.onhost.core import config, errors, layout, meminfo, runner
from lockstep.onhost.engine import openai_api, sense_record
from lockstep.onhost.facts import tls
from lockstep.onhost.facts import units as unit_facts
from lockstep.onhost.monitoring.metrics import Sample, of
from lockstep.onhost.operator import facts
from lockstep.onhost.records import boots, ended, generations, last_diff, switches
from lockstep.onhost.switching import gpu_watch, memory_floor, wedge_state
from lockstep.onhost.system import gpu

_HEALTH_TIMEOUT_S = 2.0
# A certificate changes by hand.
_EXPIRY_S = 3600.0
_SEVERITIES = ("error", "warning", "differs", "note")


@dataclass
class Expiry:
    """When the certificate in a file ends; `read` gives Unix time, s, and None for no answer."""

    path: str
    read: Callable[[str], float | None] = tls.ends_at
    _kept: tuple[float, float | None] | None = None

    def now(self) -> float | None:
        """At most an hour old."""
        if self._kept is None or time.monotonic() - self._kept[0] > _EXPIRY_S:
            self._kept = time.monotonic(), self.read(self.path)
        return self._kept[1]


@dataclass
class Slow:
    """What changes slowly, or costs a program or a request to know.

    `deploying` is whether a job of a deploy ran at the last look.
    """

    paths: layout.Paths
    gpu: Callable[[], gpu.Reading]
    expiry: Expiry | None = None
    deploying: bool = False
    _host: config.Host | None = None
    _facts: facts.Facts | None = None
    _written: int = 0
    _newest_switch: float | None = None
    _switches: Counter[str] = field(default_factory=Counter)
    _generation: tuple[int, int | None] = (0, None)

    def look(self) -> list[Sample]:
        """All of it, once. OSError, or a Problem, where the kernel, a record or a program fails."""
        host, now = self._hosts_facts()
        hot = now["hot"]
        found = [
            *self._models(host, now, hot),
            *_watched(self.paths, host, now["targets"]),
            *self._records(),
            *(of("failed_unit", 1, unit=unit) for _, unit, _ in unit_facts.failed(None)),
            of("boot_unclean", int(now["last_boot"] is not None)),
        ]
        if now["disk"] is not None:
            found.append(of("disk_free_bytes", int(now["disk"]["free_gib"] * meminfo.GIB)))
        self.deploying = _deploying(self.paths)
        return [*found, of("deploy_running", int(self.deploying))]

    def _hosts_facts(self) -> tuple[config.Host, dict[str, Any]]:
        """As the deploy bound the targets last."""
        written = self.paths.targets.stat().st_mtime_ns
        if self._host is None or self._facts is None or written != self._written:
            self._host, self._written = config.load_host(self.paths.targets), written
            self._facts = facts.Facts(self._host, self.paths, self.gpu)
        return self._host, self._facts.now()

    def _models(self, host: config.Host, now: dict[str, Any], hot: str | None) -> Iterator[Sample]:
        wanted = boots.load(self.paths)
        if wanted.hot and wanted.switched_in == boots.boot_id(self.paths):
            yield of("wanted_hot", 1, target=wanted.hot)
        for name, state in now["targets"].items():
            if state["state"] == "loading":
                yield of("loading_target", 1, target=name)
            if state["state"] in ("hot", "loading"):
                for phase, gib in memory_floor.floors(host.targets[name]).items():
                    yield of("memory_floor_bytes", int(gib * meminfo.GIB), target=name, phase=phase)
        if hot is None:
            return
        state, target = now["targets"][hot], host.targets[hot]
        yield of("hot_target", 1, target=hot, recipe=state["recipe"])
        if state["since"] is not None:
            yield of("hot_since_timestamp_seconds", state["since"], target=hot)
        if target.url or target.engine_url:
            yield of("engine_up", int(_answers(target)), target=hot)
        engine = now["engine"] or {}
        if "requests" in engine:
            yield of("engine_requests", engine["requests"], target=hot)
        if engine.get("tok_s") is not None:
            yield of("engine_tokens_per_second", engine["tok_s"], target=hot)
        seen = sense_record.last(self.paths).get(hot)
        if state["sense"] is not None and seen is not None and seen.state != "untold":
            yield of("sense_ok", int(seen.state == "sound"), target=hot)

    def _records(self) -> Iterator[Sample]:
        for result, count in sorted(self._ended_switches().items()):
            yield of("switches_total", count, result=result)
        diff = last_diff.load(self.paths)
        if diff is not None:
            counted = Counter(each["severity"] for each in diff["differences"])
            for severity in _SEVERITIES:
                yield of("drift_differences", counted[severity], severity=severity)
            yield of("drift_read_timestamp_seconds", diff["at"])
        number = self._present_generation()
        if number is not None:
            yield of("generation", number)
        if self.paths.backup.exists():
            yield of("backup_last_success_timestamp_seconds", self._last_backup())
        end = self.expiry.now() if self.expiry else None
        if self.expiry and end is not None:
            yield of("certificate_expiry_timestamp_seconds", end, path=self.expiry.path)

    def _ended_switches(self) -> Counter[str]:
        """Since this program began; the record holds the last ones only."""
        if not self._switches:
            self._switches.update(done=0, failed=0)
        kept = switches.load(self.paths)
        newest = max((each.at for each in kept), default=0.0)
        if self._newest_switch is not None:
            since = self._newest_switch
            fresh = ("failed" if each.code else "done" for each in kept if each.at > since)
            self._switches.update(fresh)
        self._newest_switch = newest
        return self._switches

    def _last_backup(self) -> float:
        """Of a host that never had one, since when it is to have one."""
        for path in (self.paths.backup_record, self.paths.backup):
            with contextlib.suppress(OSError):
                return path.stat().st_mtime
        return 0.0

    def _present_generation(self) -> int | None:
        """A record is long, and a new one changes its folder."""
        try:
            changed = self.paths.generations.stat().st_mtime_ns
        except OSError:
            return None
        if changed != self._generation[0]:
            newest = generations.newest(self.paths)
            self._generation = changed, newest["number"] if newest else None
        return self._generation[1]


def _answers(target: config.Target) -> bool:
    try:
        openai_api.check_health(target.itself, _HEALTH_TIMEOUT_S)
    except (openai_api.NotReady, openai_api.Refused):
        return False
    return True


def _watched(paths: layout.Paths, host: config.Host, targets: dict[str, Any]) -> Iterator[Sample]:
    """What the guards found and did."""
    names = {target.unit: name for name, target in host.targets.items()}
    record = wedge_state.load(paths)
    for unit, name in names.items():
        deed = wedge_state.last_deed(record, unit)
        if deed is not None:
            down = targets[name]["state"] not in ("hot", "loading")
            yield of("engine_wedged", int(deed.left_down and down), target=name)
            yield of("wedge_deed_timestamp_seconds", round(deed.when, 3), target=name)
    for each in ended.every(paths):
        yield of("memory_floor_ended", 1, target=each.target)
    findings = gpu_watch.load(paths).findings
    yield of("gpu_hot", int("gpu-hot" in findings))
    yield of("gpu_slow", int("gpu-slow" in findings))
    yield of("gpu_foreign", int(gpu_watch.FOREIGN in findings))
    if host.max_clock_mhz is not None:
        yield of("gpu_clock_cap_hertz", host.max_clock_mhz * 10**6)
        yield of("gpu_clock_cap_held", int("gpu-cap" not in findings))


def _deploying(paths: layout.Paths) -> bool:
    argv = ["systemctl", "list-units", "--plain", "--no-legend", "--no-pager", "lockstep-job-*"]
    done = runner.run(argv, timeout=30)
    if done.returncode != 0:
        raise errors.Problem(f"systemctl list-units failed: {done.stderr.strip()}")
    # A job that has ended stays, as "exited".
    states = [line.split()[3] for line in done.stdout.splitlines()]
    return paths.rollout.exists() or any(state in ("running", "start") for state in states)
