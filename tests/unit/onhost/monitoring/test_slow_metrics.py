"""The slow looks: each metric from what knows it, and left out where nobody does."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from a_hot_spark import UNIT, HotSpark
from a_model import tell
from onhost_fakes import host_root, write_models

from lockstep.onhost.core import layout, switch_lock
from lockstep.onhost.monitoring import metrics_writer, slow_metrics
from lockstep.onhost.monitoring.metric_table import (
    METRICS,
    QUICK_S,
    SLOW_S,
    MetricSample,
    prometheus_text,
)
from lockstep.onhost.records import last_diff, models_by_boot, switch_history, watch_findings
from lockstep.onhost.switching import gpu_watch
from lockstep.onhost.system import gpu_sensors

COUNTERS = """\
vllm:num_requests_running{model_name="q"} 2
vllm:num_requests_waiting{model_name="q"} 1
vllm:generation_tokens_total{model_name="q"} 20
vllm:prompt_tokens_total{model_name="q"} 10
"""


class Spark(HotSpark):
    """A host where qwen is hot, and mistral is not."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        minimums = {"minimum_loading_gib": 8.0, "minimum_serving_gib": 4.0}
        super().__init__(folder, monkeypatch, recipe="qwen-recipe", engine="vllm", **minimums)
        mistral = {**self.model, "unit": "sglang-mistral4.service"}
        write_models(self.paths, {"qwen": self.model, "mistral": mistral})
        self.engine.metrics = COUNTERS
        # Only bounds a hang; a busy machine takes longer for the engine's counters.
        monkeypatch.setattr(slow_metrics.live_state, "_PATIENCE_S", 180.0)
        self.shows("active", SubState="running", MainPID="7")
        self.reading = gpu_sensors.GpuReading()
        self.expiry = slow_metrics.Expiry("/etc/ssl/spark.pem", lambda _: 1.8e9)
        self.slow = slow_metrics.SlowMetrics(self.paths, lambda: self.reading, self.expiry)

    def shows(self, state: str, **more: str) -> None:
        """Set the properties that systemd shows of its unit."""
        self.systemd.unit(UNIT, ActiveState=state, StateChangeTimestamp="@1790000000", **more)

    def look(self) -> dict[str, dict[str, Any]]:
        """Metric, without its prefix → its labels as text → value; the text is accepted, too."""
        samples = self.slow.collect_samples()
        prometheus_text(samples)
        values_by_metric: dict[str, dict[str, Any]] = {}
        for sample in samples:
            assert METRICS[sample.name].every_s == SLOW_S
            name = sample.name.removeprefix("lockstep_")
            values_by_metric.setdefault(name, {})[" ".join(sample.labels.values())] = sample.value
        return values_by_metric


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spark]:
    host = Spark(tmp_path, monkeypatch)
    monkeypatch.setattr(
        slow_metrics.unit_facts, "failed_units", lambda _: [("failed unit", "a.service", "")]
    )
    yield host
    host.engine.close()


def test_a_hot_model_and_its_engine(spark: Spark) -> None:
    metrics = spark.look()
    expected_metrics = {
        "hot_model": {"qwen qwen-recipe": 1},
        "hot_since_timestamp_seconds": {"qwen": 1790000000},
        "engine_up": {"qwen": 1},
        "engine_requests": {"qwen": 3},
        "memory_minimum_bytes": {"qwen loading": 8 * 2**30, "qwen serving": 4 * 2**30},
        "failed_unit": {"a.service": 1},
        "boot_unclean": {"": 0},
        "certificate_expiry_timestamp_seconds": {"/etc/ssl/spark.pem": 1.8e9},
    }
    assert {name: metrics[name] for name in expected_metrics} == expected_metrics
    for absent in ("wanted_hot", "sense_ok", "drift_differences", "gpu_clock_cap_held"):
        assert absent not in metrics


def test_an_engine_that_does_not_answer_is_not_up(spark: Spark) -> None:
    spark.engine.close()
    metrics = spark.look()
    assert metrics["engine_up"] == {"qwen": 0} and "engine_requests" not in metrics


def test_what_the_last_switch_made_hot_is_wanted_though_it_is_gone(spark: Spark) -> None:
    models_by_boot.record_hot_model_of_switch(spark.paths, "qwen")
    spark.shows("inactive")
    tell(spark.paths, max_clock_mhz=2200)
    time.sleep(slow_metrics.live_state.FRESH_S)
    metrics = spark.look()
    assert metrics["wanted_hot"] == {"qwen": 1} and "hot_model" not in metrics
    assert metrics["gpu_clock_cap_held"] == {"": 1}
    models_by_boot.record_hot_model_of_switch(spark.paths, None)
    assert "wanted_hot" not in spark.look()


def test_switches_are_counted_from_the_first_look_on(spark: Spark) -> None:
    def keep(at: float, code: int) -> None:
        record = switch_history.SwitchRecord(at, 1.0, "anna", "qwen", code, "said")
        switch_history.add_switch_record(spark.paths, record)

    keep(1.0, 0)
    assert spark.look()["switches_total"] == {"done": 0, "failed": 0}
    keep(2.0, 0)
    keep(3.0, 1)
    assert spark.look()["switches_total"] == {"done": 1, "failed": 1}
    assert spark.look()["switches_total"] == {"done": 1, "failed": 1}


def test_what_guards_and_the_last_diff_found(spark: Spark) -> None:
    deeds = [
        watch_findings.Deed(UNIT, 1.0, 1790000100.0, "hung"),
        watch_findings.Deed("sglang-mistral4.service", 2.0, 1790000200.0, "hung", left_down=True),
    ]
    findings = {"gpu-hot": "hot", "gpu-cap": "lost", gpu_watch.FOREIGN: "Ollama"}
    differences = [{"severity": "error"}, {"severity": "note"}, {"severity": "note"}]
    tell(spark.paths, max_clock_mhz=2200)
    watch_findings.save(spark.paths, watch_findings.WedgeRecord(deeds=deeds))
    watch_findings.save(spark.paths, watch_findings.MemoryKill("qwen", UNIT, "serving", 4.0, 3.0))
    watch_findings.save(spark.paths, watch_findings.GpuRecord(findings, last_boot="cut off"))
    last_diff.answer_request({"differences": differences, "more": 0, "unknown": None}, spark.paths)
    metrics = spark.look()
    expected_metrics = {
        "engine_wedged": {"qwen": 0, "mistral": 1},
        "wedge_deed_timestamp_seconds": {"qwen": 1790000100.0, "mistral": 1790000200.0},
        "memory_minimum_ended": {"qwen": 1},
        "gpu_clock_cap_hertz": {"": 2.2e9},
        "drift_differences": {"error": 1, "warning": 0, "differs": 0, "note": 2},
    }
    gpu_metrics = {"gpu_hot": 1, "gpu_slow": 0, "gpu_foreign": 1, "gpu_clock_cap_held": 0}
    for name, value in {**gpu_metrics, "boot_unclean": 1}.items():
        expected_metrics[name] = {"": value}
    assert {name: metrics[name] for name in expected_metrics} == expected_metrics
    assert metrics["drift_read_timestamp_seconds"][""] == pytest.approx(time.time(), abs=60)


READING = gpu_sensors.GpuReading(
    power_w=41.5, clock_mhz=2080, temperature_c=61, utilization=96, reasons=0x20
)


def test_samples_become_the_text_that_the_textfile_collector_reads() -> None:
    samples = [
        MetricSample("lockstep_gpu_power_watts", 61.5, {}),
        MetricSample("lockstep_failed_unit", 1, {"unit": 'a"b\\c.service'}),
    ]
    text = prometheus_text(samples)
    assert "# TYPE lockstep_gpu_power_watts gauge\nlockstep_gpu_power_watts 61.5\n" in text
    assert text.endswith('lockstep_failed_unit{unit="a\\"b\\\\c.service"} 1\n')
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
