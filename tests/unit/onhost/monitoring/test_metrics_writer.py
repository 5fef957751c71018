"""The writer: the quick file each second, the slow one when it is due, and nothing old."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from onhost_fakes import host_root

from lockstep.onhost.core import layout, switch_lock
from lockstep.onhost.monitoring import metrics_writer
from lockstep.onhost.monitoring.metric_table import METRICS, QUICK_S, MetricSample
from lockstep.onhost.system import gpu_sensors

READING = gpu_sensors.GpuReading(
    power_w=41.5, clock_mhz=2080, temperature_c=61, utilization=96, reasons=0x20
)


@pytest.fixture
def paths(tmp_path: Path) -> layout.Paths:
    host_paths: layout.Paths = host_root(tmp_path / "root", {}, 41.25)
    return host_paths


def values(paths: layout.Paths, reading: gpu_sensors.GpuReading = READING) -> dict[str, float]:
    return {
        sample.name.removeprefix("lockstep_") + "".join(sample.labels.values()): sample.value
        for sample in metrics_writer.samples_each_second(paths, reading)
    }


def test_what_a_black_box_needs_is_quick(paths: layout.Paths) -> None:
    metrics = values(paths)
    assert metrics["memory_available_bytes"] == pytest.approx(41.25 * 2**30, rel=1e-3)
    assert metrics["gpu_temperature_celsius"] == 61
    assert metrics["gpu_clock_hertz"] == 2.08e9
    assert metrics["gpu_power_watts"] == 41.5
    assert metrics["gpu_utilization_ratio"] == 0.96
    assert metrics["gpu_throttledthermal slow-down by the driver"] == 1
    assert metrics["gpu_throttledpower brake"] == 0
    assert metrics["switch_running"] == 0
    with switch_lock.hold_lock(paths.switch_lock, "anna", "qwen"):
        assert values(paths)["switch_running"] == 1
    names = {sample.name for sample in metrics_writer.samples_each_second(paths, READING)}
    assert names == {name for name, metric in METRICS.items() if metric.every_s == QUICK_S}


def test_what_the_driver_does_not_tell_is_left_out(paths: layout.Paths) -> None:
    assert not any("gpu" in name for name in values(paths, gpu_sensors.GpuReading()))


class Looks:
    """Slow readings that hang until a test releases them."""

    def __init__(self) -> None:
        self.go, self.count = threading.Event(), 0

    def collect_samples(self) -> list[MetricSample]:
        self.count += 1
        assert self.go.wait(180)
        return [MetricSample("lockstep_generation", self.count, {})]


def test_a_slow_look_that_hangs_holds_nothing_up_and_takes_what_is_old_away(
    paths: layout.Paths, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    write = metrics_writer.Writer(paths, folder, lambda: READING, "")
    write._slow = looks = Looks()  # type: ignore[assignment]
    quick, slow = folder / metrics_writer.QUICK, folder / metrics_writer.SLOW
    looks.go.set()
    write.write_due_files(1000.0)
    assert quick.exists() and not slow.exists()
    write._running.result(30)  # type: ignore[union-attr]
    write.write_due_files(1001.0)
    assert slow.read_text().endswith("lockstep_generation 1\n")
    write.write_due_files(1014.0)
    assert looks.count == 1, "not yet due"
    looks.go.clear()
    write.write_due_files(1015.0)
    write.write_due_files(1075.0)
    assert slow.exists()
    quick.unlink()
    write.write_due_files(1076.0)
    assert quick.exists() and not slow.exists()
    looks.go.set()
    write._running.result(30)  # type: ignore[union-attr]
    write.write_due_files(1077.0)
    assert slow.read_text().endswith("lockstep_generation 2\n")
