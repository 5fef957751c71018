"""A GPU that is hot, slow or without its cap is named with its remedy; no other is."""

import contextlib
import time
from types import SimpleNamespace

import pytest
from a_clock import Clock
from a_gpu import AGpu
from a_hot_spark import UNIT, HotSpark
from a_model import tell
from onhost_fakes import begin_boot

from lockstep.onhost.core import config
from lockstep.onhost.records import accepted_speed, models_by_boot, watch_findings
from lockstep.onhost.switching import gpu_watch
from lockstep.onhost.system import gpu_sensors
from lockstep.onhost.system.gpu_sensors import CAP_UNIT

BAND = {"median": 38.0, "low": 35.0, "high": 41.0}


class Spark(HotSpark):
    """A host where qwen is hot; it was accepted with 50 tok/s at 35 to 41 W."""

    def __init__(self, tmp_path, monkeypatch) -> None:
        super().__init__(tmp_path, monkeypatch, recipe="qwen-nvfp4")
        self.gpu = AGpu(tmp_path / "gpu", monkeypatch)
        # Each sleep of 5 s brings tokens at this rate; `after_sleep` is then called.
        self.rate, self.running, self.tokens = 50.0, 1, 0
        self.after_sleep = lambda: None
        self.systemd.unit(CAP_UNIT, ActiveState="active", SubState="exited")
        self.boot("b")
        self.accept()
        # Samples come from the same figures as looks.
        monkeypatch.setattr(gpu_sensors, "sample_power_and_clock", self.sample_band)
        self.asleep(0)
        Clock(monkeypatch).asleep = self.asleep

    def accept(self, **entry_fields: object) -> None:
        entry = {"decode_tok_s": 50.0, "power_w": BAND, "recipe": "qwen-nvfp4", "image": None}
        accepted_speed.save(self.paths, {"qwen": {**entry, "max_clock_mhz": None, **entry_fields}})

    def boot(self, letter: str) -> None:
        """Another boot, with nothing in /run."""
        watch_findings.save(self.paths, watch_findings.GpuRecord())
        begin_boot(self.paths, letter, uptime_s=3600.0)

    def sample_band(self):
        reading = gpu_sensors.read_gpu()
        band = gpu_sensors.SampleBand([reading.power_w], [reading.clock_mhz])
        return contextlib.nullcontext(band)

    def asleep(self, seconds: float) -> None:
        self.tokens += round(self.rate * seconds)
        self.count(self.running, self.tokens)
        self.after_sleep()

    def show(self, rate: float, **figures: object) -> None:
        """Let the engine make tokens at this rate, and the GPU show these figures."""
        self.rate = rate
        self.gpu.shows(**figures)

    def look(self) -> dict[str, str]:
        host = config.load_host(self.paths.models)
        gpu_watch.GpuState(host, self.paths).check_and_record(host.models["qwen"])
        return watch_findings.load(self.paths).gpu.findings


@pytest.fixture
def spark(tmp_path, monkeypatch):
    spark = Spark(tmp_path, monkeypatch)
    yield spark
    spark.close()


SLOW = {"watts": 14.0, "clock": 611, "celsius": 50, "utilization": 96}
BUSY = {"watts": 38.0, "clock": 2418, "celsius": 68, "utilization": 96}


def test_a_slow_spark_is_named_at_the_second_look_and_until_it_is_fast(spark, capsys):
    spark.show(14.0, **SLOW)
    assert spark.look() == {}
    finding = spark.look()["gpu-slow"]
    assert finding.startswith("qwen makes 14.0 tok/s, accepted were 50.0, at 14 W and 611 MHz, ")
    assert "BROKEN: gpu-slow: qwen makes 14.0 tok/s" in spark.status_text()
    # At rest nothing can be told.
    spark.show(14.0)
    assert spark.look() == {"gpu-slow": finding}
    spark.show(49.0, **BUSY)
    assert spark.look() == {}
    assert "gpu-slow is over" in capsys.readouterr().out
    # One slow look between fast ones is none.
    spark.show(14.0, **SLOW)
    assert spark.look() == {}


@pytest.mark.parametrize(
    ("rate", "shows", "accepted_as"),
    [
        # Many streams, a long context: slow, but at full power.
        (14.0, BUSY, {}),
        # A light model takes little power.
        (49.0, SLOW, {}),
        (14.0, {**SLOW, "utilization": 60}, {}),
        # No token at all is the wedge watch's.
        (0.0, SLOW, {}),
        (14.0, SLOW, {"recipe": "another"}),
        (14.0, SLOW, {"max_clock_mhz": 2100}),
        # Accepted where the driver told no power.
        (14.0, SLOW, {"power_w": None}),
    ],
)
def test_what_looks_alike_is_no_slow_spark(spark, rate, shows, accepted_as):
    spark.accept(**accepted_as)
    spark.show(rate, **shows)
    assert [spark.look() for _ in range(3)] == [{}] * 3


def test_a_request_that_ends_meanwhile_says_nothing(spark):
    spark.show(14.0, **SLOW)
    spark.after_sleep = lambda: spark.count(running=0, tokens=spark.tokens)
    assert [spark.look() for _ in range(3)] == [{}] * 3


def test_of_sglang_its_own_rate_counts(spark):
    spark.gpu.shows(**SLOW)
    spark.count = lambda *_: None
    counters = ("num_running_reqs", 1), ("gen_throughput", 14), ("generation_tokens_total", 7)
    spark.engine.metrics = "".join(f'sglang:{name}{{a="b"}} {n}\n' for name, n in counters)
    assert [set(spark.look()) for _ in range(2)] == [set(), {"gpu-slow"}]


@pytest.mark.parametrize("reason", ["sw_thermal_slowdown", "hw_power_brake_slowdown"])
def test_a_hot_gpu_is_named_while_it_is_hot_and_not_called_slow(spark, reason):
    spark.show(14.0, **{**SLOW, "celsius": 93}, reasons=[reason])
    findings = [spark.look() for _ in range(3)]
    assert [set(finding) for finding in findings] == [{"gpu-hot"}] * 3
    assert "at 93 °C, 611 MHz, 14 W. Remedy: free the air inlets" in findings[0]["gpu-hot"]
    spark.gpu.shows(**BUSY, reasons=["sw_power_cap", "applications_clocks_setting"])
    assert spark.look() == {}
    # For a moment only.
    spark.gpu.shows(**BUSY, reasons=[reason])
    spark.after_sleep = lambda: spark.gpu.shows(**BUSY)
    assert spark.look() == {}


def test_a_cap_that_is_lost_is_set_again_and_one_that_does_not_hold_is_a_finding(spark, capsys):
    tell(spark.paths, max_clock_mhz=2100)
    capped_figures = {**BUSY, "clock": 2130}
    spark.gpu.shows(**capped_figures)
    assert (spark.look(), spark.systemd.calls) == ({}, [])
    spark.gpu.shows(**BUSY)
    spark.after_sleep = lambda: spark.gpu.shows(**capped_figures)
    assert spark.look() == {}
    assert spark.systemd.calls == [f"systemctl restart -- {CAP_UNIT}"]
    assert "2418 MHz, its cap of 2100 MHz is lost: set again" in capsys.readouterr().out
    spark.gpu.shows(**BUSY)
    spark.after_sleep = lambda: None
    assert "above its cap of 2100 MHz" in spark.look()["gpu-cap"]


def test_a_boot_that_was_cut_off_is_told_until_the_next_switch(spark):
    spark.look()
    models_by_boot.record_model_phase(spark.paths, "qwen", models_by_boot.HOT)
    spark.boot("c")
    spark.systemd.unit("kernel", journal=["NVRM: Xid (PCI:000f:01:00): 79"])
    assert spark.look() == {}
    words = "it looks like the driver or the kernel."
    assert "last boot cut off at " in spark.status_text() and words in spark.status_text()
    models_by_boot.record_hot_model_of_switch(spark.paths, "qwen")
    spark.look()
    assert "last boot" not in spark.status_text()


def let_hold(monkeypatch, is_worth_report: bool) -> None:
    """Let somebody else's process hold memory on the GPU."""
    words = {"memory_sentence": "ollama holds 40.0 GiB on the GPU", "remedy": "`ollama ps`"}
    holder = SimpleNamespace(**words, is_worth_report=is_worth_report)
    monkeypatch.setattr(gpu_watch.gpu_holders, "foreign_holders", lambda *_: [holder])


def test_an_engine_of_somebody_else_is_told_beside_a_hot_model(spark, monkeypatch):
    let_hold(monkeypatch, is_worth_report=True)
    message = "beside qwen, ollama holds 40.0 GiB on the GPU. Remedy: `ollama ps`"
    assert spark.look() == {"gpu-foreign": message}
    spark.systemd.unit(UNIT)
    assert spark.look() == {}
    assert "ollama holds 40.0 GiB" in spark.status_text(), "beside the memory, if no more"


def test_of_others_nothing_is_told_that_harms_no_model_or_cannot_be_seen(spark, monkeypatch):
    tell(spark.paths, max_clock_mhz=2100)
    spark.gpu.program.write_text("#!/bin/sh\nexit 9\n")
    assert spark.look() == {}
    let_hold(monkeypatch, is_worth_report=False)
    assert spark.look() == {}


@pytest.fixture
def card(tmp_path, monkeypatch) -> AGpu:
    return AGpu(tmp_path / "gpu", monkeypatch)


@pytest.mark.parametrize(
    ("text", "instead", "name"),
    [
        ('"power.draw', '"unheard.of.', "power_w"),
        ('"clocks_event_reasons.', '"unheard.of.', "reasons"),
        ("{now['watts']:.2f} W", "[N/A]", "power_w"),
    ],
)
def test_a_field_that_the_driver_does_not_know_or_tell_leaves_the_others(card, text, instead, name):
    card.program.write_text(card.program.read_text().replace(text, instead))
    card.shows(reasons=["sw_thermal_slowdown", "hw_power_brake_slowdown", "sync_boost"])
    reading = gpu_sensors.read_gpu()
    heat_causes = ["thermal slow-down by the driver", "power brake"]
    assert reading.heat_causes == ([] if name == "reasons" else heat_causes)
    assert (reading.temperature_c, reading.clock_mhz) == (41, 208)
    assert [key for key in ("power_w", "reasons") if getattr(reading, key) is None] == [name]


@pytest.mark.usefixtures("card")
def test_without_a_driver_nothing_is_told(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert gpu_sensors.read_gpu() == gpu_sensors.GpuReading()
    with gpu_sensors.sample_power_and_clock() as band:
        pass
    assert band.as_json() == {}


def test_samples_of_a_while_are_a_band_and_a_line_cut_off_counts_for_nothing(card):
    sample_mark = card.folder / "said"
    lines = r"31.5, 2080\n30.0, 2086\n[N/A], 2081\n29"
    card.program.write_text(f"#!/bin/sh\nprintf '{lines}'; touch {sample_mark}; exec sleep 600\n")
    with gpu_sensors.sample_power_and_clock() as band:
        limit = time.monotonic() + 180
        while not sample_mark.exists() and time.monotonic() < limit:
            time.sleep(0.01)
    assert band.as_json() == {
        "power_w": {"median": 30.75, "low": 30.0, "high": 31.5},
        "clock_mhz": {"median": 2081, "low": 2080, "high": 2086},
    }
