"""The figures of nvidia-smi, and those that it lacks for a GB10."""

import time

import pytest
from a_gpu import AGpu

from lockstep.onhost.system import gpu_sensors


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
