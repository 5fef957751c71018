"""The metrics that a monitored Spark publishes, by name, and those that an expression asks for."""

from __future__ import annotations

import re
from pathlib import Path

from lab.content.standin.metrics import Counters, sglang_metrics, vllm_metrics
from lockstep.onhost.gateway.counts import Counts
from lockstep.onhost.gateway.usage import Usage
from lockstep.onhost.monitoring.metrics import METRICS

#: Of node_exporter 1.5 and 1.7, those that are used; `tests/lab` asks a real one for them.
NODE = {
    *("node_cpu_seconds_total", "node_disk_read_bytes_total", "node_disk_written_bytes_total"),
    *("node_filesystem_avail_bytes", "node_network_receive_bytes_total"),
    "node_network_transmit_bytes_total",
    *("node_boot_time_seconds", "node_load1", "node_memory_MemFree_bytes"),
    *("node_pressure_io_stalled_seconds_total", "node_pressure_memory_stalled_seconds_total"),
    "node_thermal_zone_temp",
}
#: Of vLLM alone; the stand-in engine counts no error.
_VLLM = {"vllm:request_success_total"}
#: Prometheus' own.
_OWN = {"up", "ALERTS"}
_NAME = re.compile(r"\b(?:lockstep_\w+|node_\w+|(?:vllm|sglang):\w+|up|ALERTS)\b")


def asked(expr: str) -> set[str]:
    """The metrics of a PromQL expression."""
    return set(_NAME.findall(re.sub(r'"[^"]*"', '""', expr)))


def published(folder: Path) -> set[str]:
    """All of them; a folder for the gateway's counts."""
    engines = vllm_metrics(Counters(), "m", True) + sglang_metrics(
        Counters(drafts=1), "m", True, 1.0
    )
    gateway = Counts(Usage(folder / "usage.json")).text().decode()
    return METRICS.keys() | NODE | _VLLM | _OWN | _typed(engines + gateway)


def _typed(page: str) -> set[str]:
    found = re.findall(r"^# TYPE (\S+) (\w+)$", page, re.MULTILINE)
    parts = {name: ("_bucket", "_count", "_sum") for name, kind in found if kind == "histogram"}
    return {name + end for name, _ in found for end in ("", *parts.get(name, ()))}
