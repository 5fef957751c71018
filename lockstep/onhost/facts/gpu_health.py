"""The GPU's health: findings of the watch, and present values of its driver and sensors."""

from __future__ import annotations

import re
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.facts.reader_helpers import Facts, folder_paths, text
from lockstep.onhost.records import watch_findings
from lockstep.onhost.system import gpu_sensors

# The name of the sensors of antheas/spark_hwmon, if an owner installed it.
_SENSORS, _HWMON = "spbm", "/sys/class/hwmon"
_RAIL = re.compile(r"/power\d+_label$")


def findings(question: dict[str, Any]) -> Facts:
    """Yield faults of the GPU; `question` has "max_clock_mhz" of the inventory, or null."""
    findings_by_code = watch_findings.load(layout.Paths()).gpu.findings
    most = question.get("max_clock_mhz")
    now = gpu_sensors.read_gpu() if most else gpu_sensors.GpuReading()
    if now.is_above_cap(most):
        findings_by_code["gpu-cap"] = (
            f"the clock is {now.clock_mhz:.0f} MHz, above its cap of {most} MHz"
        )
    for code, sentence in findings_by_code.items():
        yield "gpu", code, sentence


def sensor_values(_: object) -> Facts:
    """Yield power, clock, heat, and the power rails of the whole Spark if a driver has them."""
    reading = gpu_sensors.read_gpu()
    for item, value in (
        ("power W", reading.power_w),
        ("clock MHz", reading.clock_mhz),
        ("temperature °C", reading.temperature_c),
        ("utilisation %", reading.utilization),
        (
            "last boot",
            watch_findings.load(layout.Paths()).gpu.last_boot or "not cut off under a model",
        ),
        (
            "held down by",
            ", ".join(reading.heat_causes) or "nothing" if reading.reasons is not None else None,
        ),
    ):
        yield "gpu now", item, "not told" if value is None else value
    for path in folder_paths(_HWMON):
        if text(f"{path}/name") == _SENSORS:
            for label in (rail for rail in folder_paths(path) if _RAIL.search(rail)):
                microwatts = text(label.removesuffix("label") + "input") or ""
                watts = int(microwatts) / 1e6 if microwatts.isdecimal() else "not told"
                yield "gpu now", f"rail {text(label)} W", watts
            yield "gpu now", "prochot", text(f"{path}/prochot") or "not told"
