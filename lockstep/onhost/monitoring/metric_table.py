"""The table of metrics: everything that a Spark reports beside what others publish.

The writer refuses metrics that are not here. Rules, dashboards and docs/monitoring.md are checked
against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

#: Seconds between two looks: for the black box's metrics, and for the rest.
QUICK_S, SLOW_S = 1, 15
# The unit of a metric follows from the end of its name.
_UNITS = {
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_celsius": "degrees",
    "_hertz": "hertz",
    "_watts": "watts",
    "_ratio": "0 to 1",
    "_tokens_per_second": "tokens per second",
}


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str  #: Full name in Prometheus.
    labels: tuple[str, ...]  #: Names of its labels.
    help: str  #: Description in one line.
    source: str  #: The part of the host that knows the value.
    every_s: int  #: Seconds between two looks.

    @property
    def unit(self) -> str:
        """Unit of its value; "" for counts, and for 1 (yes) and 0 (no)."""
        return next((unit for end, unit in _UNITS.items() if self.name.endswith(end)), "")

    @property
    def type(self) -> str:
        """Type in Prometheus' terms."""
        return "counter" if self.name.endswith("_total") else "gauge"


# NAME{LABELS}: source, and description.
_QUICK = """\
lockstep_metrics_written_timestamp_seconds: the writer
    When the quick ones of these metrics were written.
lockstep_memory_available_bytes: the kernel
    Memory that an engine could have: MemAvailable.
lockstep_gpu_temperature_celsius: nvidia-smi
    Temperature of the GPU.
lockstep_gpu_clock_hertz: nvidia-smi
    Clock of the GPU.
lockstep_gpu_power_watts: nvidia-smi
    Power of the GPU alone.
lockstep_gpu_utilization_ratio: nvidia-smi
    Share of the time in which some kernel ran.
lockstep_gpu_throttled{reason}: nvidia-smi
    Whether heat or the power supply holds the clock down now.
lockstep_switch_running: the switch lock
    Whether somebody is switching now.
"""
_SLOW = """\
lockstep_deploy_running: systemd
    Whether a job of a deploy runs.
lockstep_hot_model{model,recipe}: systemd
    1 for the model that is hot.
lockstep_loading_model{model}: systemd
    1 for a model that is loading.
lockstep_hot_since_timestamp_seconds{model}: systemd
    Since when the hot model is hot.
lockstep_wanted_hot{model}: the record of boots
    1 for the model that the last switch of this boot made hot.
lockstep_engine_up{model}: the engine
    Whether the engine of the hot model answers that it is well.
lockstep_engine_requests{model}: the engine
    Requests under way and waiting at the hot model.
lockstep_engine_tokens_per_second{model}: the engine
    Tokens that the hot model generates, of all requests together.
lockstep_engine_wedged{model}: the wedge watch
    Whether the wedge watch left it down after it had hung again and again.
lockstep_wedge_deed_timestamp_seconds{model}: the wedge watch
    When the wedge watch last restarted it or left it down.
lockstep_sense_ok{model}: the watch of sense
    Whether the last answers of the hot model made sense.
lockstep_switches_total{result}: the record of switches
    Switches that ended since the writer started: done or failed.
lockstep_memory_minimum_bytes{model,phase}: models.json
    Least memory available while a model that is up loads or serves.
lockstep_memory_minimum_ended{model}: the memory watch
    1 for a model that the memory watch ended, until it is hot again.
lockstep_gpu_hot: the watch of the GPU
    Whether heat holds the GPU down at two looks.
lockstep_gpu_slow: the watch of the GPU
    Whether the hot model is far below its speed.
lockstep_gpu_foreign: the watch of the GPU
    Whether somebody else's engine holds the GPU's memory beside a model.
lockstep_gpu_clock_cap_hertz: models.json
    Cap of the GPU's clock, if any.
lockstep_gpu_clock_cap_held: the watch of the GPU
    Whether that cap is in force.
lockstep_disk_free_bytes: the file system
    Space that is free on the disk of the models.
lockstep_drift_differences{severity}: `lockstep diff`
    Differences that the last diff found: error, warning, differs or note.
lockstep_drift_read_timestamp_seconds: `lockstep diff`
    When the last diff was made.
lockstep_boot_unclean: the record of boots
    Whether the boot before this one was cut off under a model.
lockstep_failed_unit{unit}: systemd
    1 for a unit that systemd gave up.
lockstep_generation: generations
    Number of the present generation.
lockstep_certificate_expiry_timestamp_seconds{path}: the certificate
    When a certificate of yours ends.
lockstep_backup_last_success_timestamp_seconds: the backup
    When the last backup that reached every place was made.
"""


def _parse_table(table: str, every_s: int) -> Iterator[Metric]:
    rows = table.splitlines()
    for head, text in zip(rows[::2], rows[1::2], strict=True):
        whole, _, source = head.partition(": ")
        name, *labels = re.findall(r"\w+", whole)
        yield Metric(name, tuple(labels), text.strip(), source, every_s)


METRICS: Mapping[str, Metric] = {
    metric.name: metric for metric in (*_parse_table(_QUICK, QUICK_S), *_parse_table(_SLOW, SLOW_S))
}


@dataclass(frozen=True)
class MetricSample:
    """One value of one metric, by its whole name."""

    name: str
    value: float
    labels: Mapping[str, str]


def own_sample(name: str, value: float, **labels: str) -> MetricSample:
    """Return a sample of one of our own metrics, by its name without our prefix."""
    return MetricSample(f"lockstep_{name}", value, labels)


def prometheus_text(samples: Iterable[MetricSample]) -> str:
    """Format samples in Prometheus' text format, metric by metric.

    Raises:
        ValueError: A sample of no metric of the table, or with other labels than it has.
    """
    lines_by_metric: dict[str, list[str]] = {}
    for sample in samples:
        metric = METRICS.get(sample.name)
        if metric is None or sorted(metric.labels) != sorted(sample.labels):
            raise ValueError(f"no such metric: {sample.name} with {sorted(sample.labels)}")
        labels = ",".join(f'{name}="{_escape(sample.labels[name])}"' for name in metric.labels)
        line = f"{sample.name}{{{labels}}} {sample.value!r}" if labels else ""
        lines_by_metric.setdefault(sample.name, []).append(
            line or f"{sample.name} {sample.value!r}"
        )
    lines = []
    for name, of in lines_by_metric.items():
        lines += [f"# HELP {name} {METRICS[name].help}", f"# TYPE {name} {METRICS[name].type}", *of]
    return "".join(f"{line}\n" for line in lines)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
