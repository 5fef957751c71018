"""Write a Spark's own metrics to the folder that node_exporter reads (docs/monitoring.md).

usage: metrics [--certificate FILE]

Runs as root in lockstep-metrics.service, from boot on. Writes quick.prom each second and slow.prom
each 15 s into the folder that systemd gives it; metrics.py says which metric is in which. Unknown
values are left out. If a look hangs, its file is removed, so that nothing old counts as new.

exit codes: 2 wrong use; it ends by a signal only
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from lockstep.onhost.core import (
    atomic_files,
    errors,
    event_lines,
    layout,
    program_command_lines,
    switch_lock,
    unified_memory,
)
from lockstep.onhost.monitoring import slow_metrics
from lockstep.onhost.monitoring.metric_table import (
    QUICK_S,
    SLOW_S,
    MetricSample,
    own_sample,
    prometheus_text,
)
from lockstep.onhost.system import gpu_sensors

QUICK, SLOW = "quick.prom", "slow.prom"
_HANGS_S = 60.0  # A slow look that takes longer hangs.


def samples_each_second(
    paths: layout.Paths, reading: gpu_sensors.GpuReading
) -> Iterator[MetricSample]:
    """Yield the black box's metrics: each second, and without a program or a request."""
    yield own_sample("metrics_written_timestamp_seconds", round(time.time(), 3))
    yield own_sample(
        "memory_available_bytes",
        int(unified_memory.memory(paths.proc).available * unified_memory.GIB),
    )
    yield own_sample("switch_running", int(switch_lock.holder(paths.switch_lock) is not None))
    for name, value, factor in (
        ("gpu_temperature_celsius", reading.temperature_c, 1.0),
        ("gpu_clock_hertz", reading.clock_mhz, 1e6),
        ("gpu_power_watts", reading.power_w, 1.0),
        ("gpu_utilization_ratio", reading.utilization, 0.01),
    ):
        if value is not None:
            yield own_sample(name, round(value * factor, 4))
    if reading.reasons is not None:
        for bit, words in gpu_sensors.HEAT.items():
            yield own_sample("gpu_throttled", int(bool(reading.reasons & bit)), reason=words)


class Writer:
    """Writer of both files of one host."""

    def __init__(
        self,
        paths: layout.Paths,
        folder: Path,
        look: Callable[[], gpu_sensors.GpuReading],
        certificate: str = "",
    ) -> None:
        self._paths = paths
        self._folder = folder
        self._gpu = look
        self._slow = slow_metrics.SlowMetrics(
            paths, look, slow_metrics.Expiry(certificate) if certificate else None
        )
        self._pool = ThreadPoolExecutor(1)
        self._running: Future[str] | None = None
        self._began = -float(SLOW_S)

    def write_due_files(self, now: float) -> None:
        """Write the files due at `now`, s of the monotonic clock; raise as `collect_samples`."""
        atomic_files.write(
            self._folder / QUICK, prometheus_text(samples_each_second(self._paths, self._gpu()))
        )
        running = self._running
        if running is not None and not running.done():
            if now - self._began > _HANGS_S:
                (self._folder / SLOW).unlink(missing_ok=True)
            return
        self._running = None
        if running is not None:
            atomic_files.write(self._folder / SLOW, running.result())
        if now - self._began >= SLOW_S:
            self._began, self._running = (
                now,
                self._pool.submit(lambda: prometheus_text(self._slow.collect_samples())),
            )


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("--certificate", default="", metavar="FILE")
    options = parser.parse_args(argv)
    folder = Path(os.environ["RUNTIME_DIRECTORY"])
    gpu_watch = gpu_sensors.GpuWatch()
    writer = Writer(paths or layout.Paths(), folder, gpu_watch.newest_reading, options.certificate)
    last_message = ""
    while True:
        now = time.monotonic()
        try:
            writer.write_due_files(now)
            last_message = ""
        except (OSError, errors.Problem) as problem:
            # A fault of one look must not end the others.
            if str(problem) != last_message:
                last_message = str(problem)
                event_lines.say(f"lockstep metrics: {last_message}")
        time.sleep(max(0.0, now + QUICK_S - time.monotonic()))
