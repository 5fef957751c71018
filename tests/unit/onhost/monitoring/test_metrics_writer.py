"""Metrics as text, and their writer: a quick file each second, a slow one, and nothing old."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from onhost_fakes import host_root

from lockstep.onhost.core import layout, switch_lock
from lockstep.onhost.monitoring import metrics_writer
from lockstep.onhost.monitoring.metric_table import METRICS, QUICK_S, MetricSample, prometheus_text
from lockstep.onhost.system import gpu_sensors

READING = gpu_sensors.GpuReading(
    power_w=41.5, clock_mhz=2080, temperature_c=61, utilization=96, reasons=0x20
)


def test_samples_become_the_text_that_the_textfile_collector_reads() -> None:
    samples = [
        MetricSample("lockstep_gpu_power_watts", 61.5, {}),
        MetricSample("lockstep_failed_unit", 1, {"unit": 'a"b\\c.service'}),
        MetricSample("lockstep_failed_unit", 1, {"unit": "d.service"}),
    ]
    assert prometheus_text(samples) == (
        "# HELP lockstep_gpu_power_watts Power of the GPU alone.\n"
        "# TYPE lockstep_gpu_power_watts gauge\n"
        "lockstep_gpu_power_watts 61.5\n"
        "# HELP lockstep_failed_unit 1 for a unit that systemd gave up.\n"
        "# TYPE lockstep_failed_unit gauge\n"
        'lockstep_failed_unit{unit="a\\"b\\\\c.service"} 1\n'
        'lockstep_failed_unit{unit="d.service"} 1\n'
    )
    for name, labels in (("unheard_of", {}), ("gpu_power_watts", {"host": "spark-1"})):
        with pytest.raises(ValueError, match=f"lockstep_{name}"):
            prometheus_text([MetricSample(f"lockstep_{name}", 1, labels)])


@pytest.fixture
def paths(tmp_path: Path) -> layout.Paths:
    return host_root(tmp_path / "root", {}, 41.25)


def values(paths: layout.Paths, reading: gpu_sensors.GpuReading = READING) -> dict[str, float]:
    return {
        sample.name.removeprefix("lockstep_") + "".join(sample.labels.values()): sample.value
        for sample in metrics_writer.samples_each_second(paths, reading)
    }


def test_what_a_black_box_needs_is_quick(paths: layout.Paths) -> None:
    metrics = values(paths)
    assert metrics["memory_available_bytes"] == pytest.approx(41.25 * 2**30, rel=1e-3)
    expected_metrics = {
        "gpu_temperature_celsius": 61,
        "gpu_clock_hertz": 2.08e9,
        "gpu_power_watts": 41.5,
        "gpu_utilization_ratio": 0.96,
        "gpu_throttledthermal slow-down by the driver": 1,
        "gpu_throttledpower brake": 0,
        "switch_running": 0,
    }
    assert {name: metrics[name] for name in expected_metrics} == expected_metrics
    with switch_lock.hold_lock(paths.switch_lock, "anna", "qwen"):
        assert values(paths)["switch_running"] == 1
    names = {sample.name for sample in metrics_writer.samples_each_second(paths, READING)}
    assert names == {name for name, metric in METRICS.items() if metric.every_s == QUICK_S}
    # What the driver does not tell is left out.
    assert not any("gpu" in name for name in values(paths, gpu_sensors.GpuReading()))


def test_a_slow_look_that_hangs_holds_nothing_up(paths: layout.Paths, tmp_path: Path) -> None:
    folder, is_released, looks = tmp_path / "out", threading.Event(), []
    folder.mkdir()

    def collect_samples() -> list[MetricSample]:
        looks.append(None)
        assert is_released.wait(180)
        return [MetricSample("lockstep_generation", len(looks), {})]

    write = metrics_writer.Writer(paths, folder, lambda: READING, "")
    write._slow = SimpleNamespace(collect_samples=collect_samples)  # type: ignore[assignment]
    quick, slow = folder / metrics_writer.QUICK, folder / metrics_writer.SLOW
    is_released.set()
    write.write_due_files(1000.0)
    assert quick.exists() and not slow.exists()
    write._running.result(30)  # type: ignore[union-attr]
    write.write_due_files(1001.0)
    assert slow.read_text().endswith("lockstep_generation 1\n")
    write.write_due_files(1014.0)
    assert len(looks) == 1, "not yet due"
    is_released.clear()
    write.write_due_files(1015.0)
    write.write_due_files(1075.0)
    assert slow.exists()
    quick.unlink()
    write.write_due_files(1076.0)
    assert quick.exists() and not slow.exists()
    is_released.set()
    write._running.result(30)  # type: ignore[union-attr]
    write.write_due_files(1077.0)
    assert slow.read_text().endswith("lockstep_generation 2\n")
