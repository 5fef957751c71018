"""A host's report on its GPU: the findings for diff, and every figure for evidence."""

import pytest
from a_gpu import AGpu

from lockstep.onhost.core import layout
from lockstep.onhost.facts import gpu_health as facts
from lockstep.onhost.records import watch_findings


@pytest.fixture
def card(tmp_path, monkeypatch) -> AGpu:
    """A GPU, and a host of which the watch has nothing to tell."""
    paths = layout.Paths(tmp_path / "root")
    monkeypatch.setattr(layout, "Paths", lambda: paths)
    monkeypatch.setattr(facts, "_HWMON", str(tmp_path / "hwmon"))
    return AGpu(tmp_path / "gpu", monkeypatch)


def gpu_findings(most: int | None = None) -> dict[str, object]:
    facts_of_diff = facts.findings({"max_clock_mhz": most})
    return {item: value for kind, item, value in facts_of_diff if kind == "gpu"}


def test_diff_shows_what_the_watch_found_and_a_cap_that_is_lost_before_the_watch_does(card):
    assert gpu_findings() == {}
    record = watch_findings.GpuRecord({"gpu-hot": "the GPU is held down"})
    watch_findings.save(layout.Paths(), record)
    hot = {"gpu-hot": "the GPU is held down"}
    card.shows(clock=2418)
    assert gpu_findings() == hot
    lost_cap = {"gpu-cap": "the clock is 2418 MHz, above its cap of 2100 MHz"}
    assert gpu_findings(2100) == hot | lost_cap
    card.shows(clock=2080)
    assert gpu_findings(2100) == hot


def test_evidence_has_every_figure_and_the_rails_where_a_driver_tells_them(card, tmp_path):
    card.shows(watts=38.5, clock=2418, celsius=68, utilization=96, reasons=["hw_slowdown"])
    rails = {"power1_label": "sys_total", "power1_input": "61250000", "power11_label": "pl1"}
    sensors = {"acpitz": {"temp1_input": "40000"}, "spbm": {**rails, "prochot": "0"}}
    for name, files in sensors.items():
        folder = tmp_path / "hwmon" / name
        folder.mkdir(parents=True)
        for file, content in {"name": name, **files}.items():
            (folder / file).write_text(f"{content}\n")
    assert [(item, value) for _, item, value in facts.sensor_values(None)] == [
        ("power W", 38.5),
        ("clock MHz", 2418.0),
        ("temperature °C", 68.0),
        ("utilisation %", 96.0),
        ("last boot", "not cut off under a model"),
        ("held down by", "hardware slow-down"),
        ("rail pl1 W", "not told"),
        ("rail sys_total W", 61.25),
        ("prochot", "0"),
    ]
    # Without a driver it says so.
    card.program.write_text("#!/bin/sh\nexit 9\n")
    evidence = {item: value for _, item, value in facts.sensor_values(None)}
    assert evidence["power W"] == evidence["held down by"] == "not told"
