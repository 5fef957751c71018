"""The table of metrics: everything that a Spark tells of itself beside what others publish.

The writer refuses what is not here. Rules, dashboards and docs/monitoring.md are checked against
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

#: Seconds between two looks: at what a black box needs, and at the rest.
QUICK_S, SLOW_S = 1, 15


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: As Prometheus knows it.
        unit: Of its value; "" for a number of things, and for 1 (yes) and 0 (no).
        labels: Names of its labels.
        help: What it says, in one line.
        source: Who knows it on the host.
        every_s: Seconds between two looks.
        type: Prometheus' own word.
    """

    name: str
    unit: str
    labels: tuple[str, ...]
    help: str
    source: str
    every_s: int = SLOW_S
    type: Literal["gauge", "counter"] = "gauge"


_TARGET = ("target",)
_DRIVER = "nvidia-smi"
_WATCH = "the watch of the GPU"

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "lockstep_metrics_written_timestamp_seconds",
            "seconds",
            (),
            "When the quick ones of these metrics were written.",
            "the writer",
            QUICK_S,
        ),
        Metric(
            "lockstep_memory_available_bytes",
            "bytes",
            (),
            "Memory that an engine could have: MemAvailable.",
            "the kernel",
            QUICK_S,
        ),
        Metric(
            "lockstep_gpu_temperature_celsius",
            "degrees",
            (),
            "Temperature of the GPU.",
            _DRIVER,
            QUICK_S,
        ),
        Metric("lockstep_gpu_clock_hertz", "hertz", (), "Clock of the GPU.", _DRIVER, QUICK_S),
        Metric(
            "lockstep_gpu_power_watts", "watts", (), "Power of the GPU alone.", _DRIVER, QUICK_S
        ),
        Metric(
            "lockstep_gpu_utilization_ratio",
            "0 to 1",
            (),
            "Share of the time in which some kernel ran.",
            _DRIVER,
            QUICK_S,
        ),
        Metric(
            "lockstep_gpu_throttled",
            "",
            ("reason",),
            "Whether heat or the power supply holds the clock down now.",
            _DRIVER,
            QUICK_S,
        ),
        Metric(
            "lockstep_switch_running",
            "",
            (),
            "Whether somebody is switching now.",
            "the switch lock",
            QUICK_S,
        ),
        Metric(
            "lockstep_deploy_running",
            "",
            (),
            "Whether a job of a deploy runs.",
            "systemd",
        ),
        Metric(
            "lockstep_hot_target",
            "",
            ("target", "recipe"),
            "1 for the target that is hot.",
            "systemd",
        ),
        Metric(
            "lockstep_loading_target", "", _TARGET, "1 for a target that is loading.", "systemd"
        ),
        Metric(
            "lockstep_hot_since_timestamp_seconds",
            "seconds",
            _TARGET,
            "Since when the hot target is hot.",
            "systemd",
        ),
        Metric(
            "lockstep_wanted_hot",
            "",
            _TARGET,
            "1 for the target that the last switch of this boot made hot.",
            "the record of boots",
        ),
        Metric(
            "lockstep_engine_up",
            "",
            _TARGET,
            "Whether the engine of the hot target answers that it is well.",
            "the engine",
        ),
        Metric(
            "lockstep_engine_requests",
            "",
            _TARGET,
            "Requests under way and waiting at the hot target.",
            "the engine",
        ),
        Metric(
            "lockstep_engine_tokens_per_second",
            "tokens per second",
            _TARGET,
            "Tokens that the hot target generates, of all requests together.",
            "the engine",
        ),
        Metric(
            "lockstep_engine_wedged",
            "",
            _TARGET,
            "Whether the wedge watch left it down after it had hung again and again.",
            "the wedge watch",
        ),
        Metric(
            "lockstep_wedge_deed_timestamp_seconds",
            "seconds",
            _TARGET,
            "When the wedge watch last restarted it or left it down.",
            "the wedge watch",
        ),
        Metric(
            "lockstep_sense_ok",
            "",
            _TARGET,
            "Whether the last answers of the hot target made sense.",
            "the watch of sense",
        ),
        Metric(
            "lockstep_switches_total",
            "",
            ("result",),
            "Switches that ended since the writer started: done or failed.",
            "the record of switches",
            type="counter",
        ),
        Metric(
            "lockstep_memory_floor_bytes",
            "bytes",
            ("target", "phase"),
            "Least memory available while a target that is up loads or serves.",
            "targets.json",
        ),
        Metric(
            "lockstep_memory_floor_ended",
            "",
            _TARGET,
            "1 for a target that the memory floor ended, until it is hot again.",
            "the memory floor",
        ),
        Metric("lockstep_gpu_hot", "", (), "Whether heat holds the GPU down at two looks.", _WATCH),
        Metric(
            "lockstep_gpu_slow", "", (), "Whether the hot model is far below its speed.", _WATCH
        ),
        Metric(
            "lockstep_gpu_clock_cap_hertz",
            "hertz",
            (),
            "Cap of the GPU's clock, if any.",
            "targets.json",
        ),
        Metric("lockstep_gpu_clock_cap_held", "", (), "Whether that cap is in force.", _WATCH),
        Metric(
            "lockstep_disk_free_bytes",
            "bytes",
            (),
            "Space that is free on the disk of the models.",
            "the file system",
        ),
        Metric(
            "lockstep_drift_differences",
            "",
            ("severity",),
            "Differences that the last diff found: error, warning or note.",
            "`lockstep diff`",
        ),
        Metric(
            "lockstep_drift_read_timestamp_seconds",
            "seconds",
            (),
            "When the last diff was made.",
            "`lockstep diff`",
        ),
        Metric(
            "lockstep_boot_unclean",
            "",
            (),
            "Whether the boot before this one was cut off under a model.",
            "the record of boots",
        ),
        Metric(
            "lockstep_failed_unit", "", ("unit",), "1 for a unit that systemd gave up.", "systemd"
        ),
        Metric("lockstep_generation", "", (), "Number of the present generation.", "generations"),
        Metric(
            "lockstep_certificate_expiry_timestamp_seconds",
            "seconds",
            ("path",),
            "When a certificate of yours ends.",
            "the certificate",
        ),
        Metric(
            "lockstep_backup_last_success_timestamp_seconds",
            "seconds",
            (),
            "When the last backup that reached every place was made.",
            "the backup",
        ),
    )
}


@dataclass(frozen=True)
class Sample:
    """One value of one metric, by its whole name."""

    name: str
    value: float
    labels: Mapping[str, str]


def text(samples: Iterable[Sample]) -> str:
    """Samples in Prometheus' text format, metric by metric.

    Raises:
        ValueError: a sample of no metric of the table, or with other labels than it has.
    """
    found: dict[str, list[str]] = {}
    for sample in samples:
        metric = METRICS.get(sample.name)
        if metric is None or sorted(metric.labels) != sorted(sample.labels):
            raise ValueError(f"no such metric: {sample.name} with {sorted(sample.labels)}")
        labels = ",".join(f'{name}="{_escaped(sample.labels[name])}"' for name in metric.labels)
        line = f"{sample.name}{{{labels}}} {sample.value!r}" if labels else ""
        found.setdefault(sample.name, []).append(line or f"{sample.name} {sample.value!r}")
    lines = []
    for name, of in found.items():
        lines += [f"# HELP {name} {METRICS[name].help}", f"# TYPE {name} {METRICS[name].type}", *of]
    return "".join(f"{line}\n" for line in lines)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
