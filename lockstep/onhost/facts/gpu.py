"""The GPU's health: what the watch found, and what its driver and sensors tell now."""

from __future__ import annotations

import re
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.facts.reading import Facts, listed, text
from lockstep.onhost.switching import gpu_watch
from lockstep.onhost.system import gpu

# The name that antheas/spark_hwmon gives itself, where an owner installed it.
_SENSORS, _HWMON = "spbm", "/sys/class/hwmon"
_RAIL = re.compile(r"/power\d+_label$")


def findings(asked: dict[str, Any]) -> Facts:
    """What is wrong with the GPU. Asked: "max_clock_mhz" of the inventory, or null."""
    found = gpu_watch.load(layout.Paths()).findings
    most = asked.get("max_clock_mhz")
    now = gpu.look() if most else gpu.Reading()
    if now.above(most):
        found["gpu-cap"] = f"the clock is {now.clock_mhz:.0f} MHz, above its cap of {most} MHz"
    for code, said in found.items():
        yield "gpu", code, said


def now(_: object) -> Facts:
    """Power, clock, heat, and the power rails of the whole Spark where a driver tells them."""
    seen = gpu.look()
    for item, value in (
        ("power W", seen.power_w),
        ("clock MHz", seen.clock_mhz),
        ("temperature °C", seen.temperature_c),
        ("utilisation %", seen.utilization),
        ("last boot", gpu_watch.load(layout.Paths()).last_boot or "not cut off under a model"),
        ("held down by", ", ".join(seen.heat) or "nothing" if seen.reasons is not None else None),
    ):
        yield "gpu now", item, "not told" if value is None else value
    for path in listed(_HWMON):
        if text(f"{path}/name") == _SENSORS:
            for label in (each for each in listed(path) if _RAIL.search(each)):
                microwatts = text(label.removesuffix("label") + "input") or ""
                watts = int(microwatts) / 1e6 if microwatts.isdecimal() else "not told"
                yield "gpu now", f"rail {text(label)} W", watts
            yield "gpu now", "prochot", text(f"{path}/prochot") or "not told"
