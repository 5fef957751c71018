"""Slow metrics: models, engines, guards, records, units and the certificate of a host."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lockstep.onhost.core import config, layout, unified_memory
from lockstep.onhost.engine import openai_api
from lockstep.onhost.facts import tls
from lockstep.onhost.facts import units as unit_facts
from lockstep.onhost.monitoring.metric_table import MetricSample, own_sample
from lockstep.onhost.operator import live_state
from lockstep.onhost.records import (
    generations,
    last_diff,
    models_by_boot,
    switch_history,
    watch_findings,
)
from lockstep.onhost.switching import gpu_watch, hot_change_under_way, memory_watch
from lockstep.onhost.system import gpu_sensors
from lockstep.onhost.systemd import transient_job

_HEALTH_TIMEOUT_S = 2.0
# A certificate changes by hand.
_EXPIRY_S = 3600.0
_SEVERITIES = ("error", "warning", "differs", "note")


@dataclass
class Expiry:
    """The end of a certificate file's validity; `read` gives Unix time, s, or None."""

    path: str
    read: Callable[[str], float | None] = tls.end_time
    _cached_expiry: tuple[float, float | None] | None = None

    def certificate_end(self) -> float | None:
        """Return the end, at most an hour old."""
        if self._cached_expiry is None or time.monotonic() - self._cached_expiry[0] > _EXPIRY_S:
            self._cached_expiry = time.monotonic(), self.read(self.path)
        return self._cached_expiry[1]


@dataclass
class SlowMetrics:
    """Metrics that change slowly, or cost a program or a request."""

    paths: layout.Paths
    gpu: Callable[[], gpu_sensors.GpuReading]
    expiry: Expiry | None = None
    _host: config.HostConfig | None = None
    _facts: live_state.Facts | None = None
    _write_mtime: int = 0
    _newest_switch: float | None = None
    _switches: Counter[str] = field(default_factory=Counter)
    _generation: tuple[int, int | None] = (0, None)

    def collect_samples(self) -> list[MetricSample]:
        """Read all of them once.

        Raises:
            OSError: The kernel or a record could not be read.
            errors.Problem: A record or a program failed.
        """
        host, now = self._models_and_facts()
        hot = now["hot"]
        samples = [
            *self._model_samples(host, now, hot),
            *_watch_finding_samples(self.paths, host, now["models"]),
            *self._samples_of_records(),
            *(
                own_sample("failed_unit", 1, unit=unit)
                for _, unit, _ in unit_facts.failed_units(None)
            ),
            own_sample("boot_unclean", int(now["last_boot"] is not None)),
        ]
        if now["disk"] is not None:
            samples.append(
                own_sample("disk_free_bytes", int(now["disk"]["free_gib"] * unified_memory.GIB))
            )
        return [*samples, own_sample("deploy_running", int(_is_deploy_job_running(self.paths)))]

    def _models_and_facts(self) -> tuple[config.HostConfig, dict[str, Any]]:
        """Return the models as the last deploy bound them, and the host's facts."""
        write_mtime = self.paths.models.stat().st_mtime_ns
        if self._host is None or self._facts is None or write_mtime != self._write_mtime:
            self._host, self._write_mtime = config.load_host(self.paths.models), write_mtime
            self._facts = live_state.Facts(self._host, self.paths, self.gpu)
        return self._host, self._facts.facts_now()

    def _model_samples(
        self, host: config.HostConfig, now: dict[str, Any], hot: str | None
    ) -> Iterator[MetricSample]:
        boot_record = models_by_boot.load(self.paths)
        if boot_record.hot and boot_record.switched_in == models_by_boot.boot_id(self.paths):
            yield own_sample("wanted_hot", 1, model=boot_record.hot)
        for name, state in now["models"].items():
            if state["state"] == "loading":
                yield own_sample("loading_model", 1, model=name)
            if state["state"] in ("hot", "loading"):
                for phase, gib in memory_watch.minimums(host.models[name]).items():
                    yield own_sample(
                        "memory_minimum_bytes",
                        int(gib * unified_memory.GIB),
                        model=name,
                        phase=phase,
                    )
        if hot is None:
            return
        state, model = now["models"][hot], host.models[hot]
        yield own_sample("hot_model", 1, model=hot, recipe=state["recipe"])
        if state["since"] is not None:
            yield own_sample("hot_since_timestamp_seconds", state["since"], model=hot)
        if model.url or model.engine_url:
            yield own_sample("engine_up", int(_answers_now(model)), model=hot)
        engine = now["engine"] or {}
        if "requests" in engine:
            yield own_sample("engine_requests", engine["requests"], model=hot)
        if engine.get("tok_s") is not None:
            yield own_sample("engine_tokens_per_second", engine["tok_s"], model=hot)
        last_sense = watch_findings.load(self.paths).senses.get(hot)
        if state["sense"] is not None and last_sense is not None and last_sense.state != "untold":
            yield own_sample("sense_ok", int(last_sense.state == "sound"), model=hot)

    def _samples_of_records(self) -> Iterator[MetricSample]:
        for result, count in sorted(self._ended_switches().items()):
            yield own_sample("switches_total", count, result=result)
        diff = last_diff.load(self.paths)
        if diff is not None:
            counter = Counter(finding["severity"] for finding in diff["differences"])
            for severity in _SEVERITIES:
                yield own_sample("drift_differences", counter[severity], severity=severity)
            yield own_sample("drift_read_timestamp_seconds", diff["at"])
        number = self._present_generation()
        if number is not None:
            yield own_sample("generation", number)
        if self.paths.backup.exists():
            yield own_sample("backup_last_success_timestamp_seconds", self._last_backup())
        end = self.expiry.certificate_end() if self.expiry else None
        if self.expiry and end is not None:
            yield own_sample("certificate_expiry_timestamp_seconds", end, path=self.expiry.path)

    def _ended_switches(self) -> Counter[str]:
        """Count ended switches since this program began; the record holds the last ones only."""
        if not self._switches:
            self._switches.update(done=0, failed=0)
        kept_switches = switch_history.load(self.paths)
        newest = max((kept_switch.at for kept_switch in kept_switches), default=0.0)
        if self._newest_switch is not None:
            since = self._newest_switch
            fresh = (
                "failed" if kept_switch.code else "done"
                for kept_switch in kept_switches
                if kept_switch.at > since
            )
            self._switches.update(fresh)
        self._newest_switch = newest
        return self._switches

    def _last_backup(self) -> float:
        """Return the last backup's time; if there never was one, the time since when one is due."""
        for path in (self.paths.backup_record, self.paths.backup):
            with contextlib.suppress(OSError):
                return path.stat().st_mtime
        return 0.0

    def _present_generation(self) -> int | None:
        """Return the present generation; its long record is read only after its folder changed."""
        try:
            change_mtime = self.paths.generations.stat().st_mtime_ns
        except OSError:
            return None
        if change_mtime != self._generation[0]:
            newest = generations.newest_record(self.paths)
            self._generation = change_mtime, newest["number"] if newest else None
        return self._generation[1]


def _answers_now(model: config.Model) -> bool:
    try:
        openai_api.check_health(model.at_engine_address, _HEALTH_TIMEOUT_S)
    except (openai_api.NotReady, openai_api.RequestRefusal):
        return False
    return True


def _watch_finding_samples(
    paths: layout.Paths, host: config.HostConfig, models: dict[str, Any]
) -> Iterator[MetricSample]:
    """Yield the findings and actions of the guards."""
    names = {model.unit: name for name, model in host.models.items()}
    watches = watch_findings.load(paths)
    for unit, name in names.items():
        deed = watches.wedge.last_deed(unit)
        if deed is not None:
            down = models[name]["state"] not in ("hot", "loading")
            yield own_sample("engine_wedged", int(deed.left_down and down), model=name)
            yield own_sample("wedge_deed_timestamp_seconds", round(deed.when, 3), model=name)
    for kill in watches.kills.values():
        yield own_sample("memory_minimum_ended", 1, model=kill.model)
    findings = watches.gpu.findings
    yield own_sample("gpu_hot", int("gpu-hot" in findings))
    yield own_sample("gpu_slow", int("gpu-slow" in findings))
    yield own_sample("gpu_foreign", int(gpu_watch.FOREIGN in findings))
    if host.max_clock_mhz is not None:
        yield own_sample("gpu_clock_cap_hertz", host.max_clock_mhz * 10**6)
        yield own_sample("gpu_clock_cap_held", int("gpu-cap" not in findings))


def _is_deploy_job_running(paths: layout.Paths) -> bool:
    return hot_change_under_way.load(paths).rollout is not None or bool(
        transient_job.running_jobs()
    )
