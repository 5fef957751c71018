"""What a host keeps of another one each second, so that it is there when that one is not."""

from __future__ import annotations

from lockstep.onhost.monitoring.metrics import METRICS, QUICK_S

#: Seconds between two looks at the host that is recorded.
RECORD_S = QUICK_S
#: Collectors of its node_exporter that are asked; each costs it time.
COLLECTORS = (*("diskstats", "loadavg", "meminfo", "pressure", "stat", "textfile", "thermal_zone"),)
_NODE = (
    *("node_boot_time_seconds", "node_load1", "node_memory_MemFree_bytes"),
    *("node_disk_read_bytes_total", "node_disk_written_bytes_total"),
    *("node_pressure_io_stalled_seconds_total", "node_pressure_memory_stalled_seconds_total"),
    "node_thermal_zone_temp",
)
_SLOW = (
    *("lockstep_deploy_running", "lockstep_hot_target", "lockstep_loading_target"),
    *("lockstep_memory_floor_bytes", "lockstep_memory_floor_ended"),
)
#: The series that are kept; whatever else a collector tells is dropped.
SERIES = (*(name for name, metric in METRICS.items() if metric.every_s == QUICK_S), *_SLOW, *_NODE)
