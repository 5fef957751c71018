"""The names of the metrics that a monitored Spark publishes, and of those in rules."""

import re
from pathlib import Path
from typing import Any

import yaml

from lab.content.standin.metrics import Counters, sglang_metrics, vllm_metrics
from lockstep.onhost.gateway.request_counters import Counts
from lockstep.onhost.gateway.usage_totals import Usage
from lockstep.onhost.monitoring.metric_table import METRICS

#: Used metrics of node_exporter 1.5 and 1.7; `tests/lab` asks a real one for them.
NODE = {
    *("node_cpu_seconds_total", "node_disk_read_bytes_total", "node_disk_written_bytes_total"),
    *("node_filesystem_avail_bytes", "node_network_receive_bytes_total"),
    "node_network_transmit_bytes_total",
    *("node_boot_time_seconds", "node_load1", "node_memory_MemFree_bytes"),
    *("node_pressure_io_stalled_seconds_total", "node_pressure_memory_stalled_seconds_total"),
    "node_thermal_zone_temp",
}
#: Metrics that only the real vLLM has; the stand-in engine counts no errors.
_VLLM = {"vllm:request_success_total"}
#: Metrics of Prometheus itself.
_OWN = {"up", "ALERTS"}
_NAME = re.compile(r"\b(?:lockstep_\w+|node_\w+|(?:vllm|sglang):\w+|up|ALERTS)\b")


def alert_rules(text: str) -> dict[str, dict[str, Any]]:
    """The rules of a file by their names, without those that only keep others back."""
    rules = yaml.safe_load(text)["groups"][0]["rules"]
    return {rule["alert"]: rule for rule in rules if "subject" in rule["labels"]}


def queried_metrics(expr: str) -> set[str]:
    """The metrics of a PromQL expression."""
    return set(_NAME.findall(re.sub(r'"[^"]*"', '""', expr)))


def published_metrics(folder: Path) -> set[str]:
    """The names of all metrics; the gateway's counts are made in a folder."""
    engines = vllm_metrics(Counters(), "m", True) + sglang_metrics(
        Counters(drafts=1), "m", True, 1.0
    )
    gateway = Counts(Usage(folder / "usage.json")).prometheus_text().decode()
    return METRICS.keys() | NODE | _VLLM | _OWN | _typed_metrics(engines + gateway)


def _typed_metrics(page: str) -> set[str]:
    metric_types = re.findall(r"^# TYPE (\S+) (\w+)$", page, re.MULTILINE)
    parts = {
        name: ("_bucket", "_count", "_sum") for name, kind in metric_types if kind == "histogram"
    }
    return {name + end for name, _ in metric_types for end in ("", *parts.get(name, ()))}
