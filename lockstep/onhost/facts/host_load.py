"""Running work: the hot models with their requests, and the machine's load and temperature."""

from __future__ import annotations

import re
import time
from typing import Any

from lockstep.onhost.core import config, errors, layout
from lockstep.onhost.engine import openai_api
from lockstep.onhost.facts.reader_helpers import document, run
from lockstep.onhost.system import gpu_sensors
from lockstep.onhost.systemd import outdated_units
from lockstep.onhost.systemd import units as systemd

_LOOK_S = 0.5
_ANSWER_S = 3.0
_PROPERTIES = ("ActiveState", "MainPID", "InvocationID", "Environment")


def _processor_times() -> tuple[int, int]:
    with open("/proc/stat", encoding="ascii") as text:
        times = [int(word) for word in text.readline().split()[1:9]]
    return sum(times), times[3] + times[4]


def _busy_share() -> float:
    total, idle = _processor_times()
    time.sleep(_LOOK_S)
    later, still = _processor_times()
    return 1 - (still - idle) / max(1, later - total)


def _hot_unit(units: list[str]) -> dict[str, Any]:
    for name, state in systemd.properties(units, *_PROPERTIES).items():
        if state.get("ActiveState") == "active":
            unit = systemd.unit_from_properties(state)
            file_key = outdated_units.written_restart_key(state.get("Environment", ""))
            return {
                "hot": name,
                "start_id": state.get("InvocationID"),
                "restart_key": outdated_units.running_restart_key(unit) or None,
                "file_restart_key": file_key or None,
            }
    return {}


def _gpu() -> dict[str, Any]:
    reading = gpu_sensors.read_gpu()
    is_slowed = (
        None
        if reading.reasons is None
        else bool(reading.heat_causes or reading.reasons & gpu_sensors.POWER_CAP)
    )
    return {
        "temperature_c": reading.temperature_c,
        "sm_mhz": reading.clock_mhz,
        "is_throttled": is_slowed,
    }


def _newest_compiling_line(unit: str | None, pattern: str) -> str | None:
    if not (unit and pattern):
        return None
    look = ("journalctl", "-q", "--no-pager", "-u", unit, "--since=-1h", "-o", "short-iso-precise")
    result = run(*look)
    matching_lines = [line for line in result.stdout.splitlines() if re.search(pattern, line)]
    return (matching_lines or [""])[-1] if result.returncode == 0 else None


def _tensor_counts(index: str, pattern: str) -> dict[str, int] | None:
    names = (document(index) or {}).get("weight_map")
    if names is None:
        return None
    return {"all": len(names), "vision": sum(bool(re.search(pattern, name)) for name in names)}


def read(question: dict[str, Any]) -> dict[str, Any]:
    """Return the hot unit, its models, and the load of the machine.

    Args:
        question: Path of the "models", and a pattern of the engine's log line when it compiles a
            kernel ("compiler_pattern"). The path of an "index" replaces the last four results by
            the "tensors" of that weight map, and the number of them that match "vision".

    Returns:
        The "models" as the deploy bound them; the "hot" unit with the restart key that it runs
        with ("restart_key") and the one of its file ("file_restart_key"); how "busy" the processors
        are without requests; the GPU's clock and temperature; the "compiler_line", the last one of
        the last hour about a kernel that was compiled.
    """
    models = (document(question["models"]) or {}).get("models", {})
    ruler_facts = {"models": models, **_hot_unit([model["unit"] for model in models.values()])}
    if question.get("index"):
        return {**ruler_facts, "tensors": _tensor_counts(question["index"], question["vision"])}
    last = _newest_compiling_line(ruler_facts.get("hot"), question.get("compiler_pattern", ""))
    return {**ruler_facts, "busy": _busy_share(), **_gpu(), "compiler_line": last}


def hot_models(_: object) -> dict[str, dict[str, Any]]:
    """Return "name" by unit, and "requests" under way, null if unknown; the question is ignored."""
    try:
        models = config.load_host(layout.Paths().models).models.values()
    except errors.Problem:
        # The file is an earlier Lockstep's, or there is none.
        return {}
    states = systemd.units_by_name([model.unit for model in models])
    return {
        model.unit: {"name": model.name, "requests": _requests(model)}
        for model in models
        if states[model.unit].state not in ("off", "failed")
    }


def _requests(model: config.Model) -> int | None:
    if not model.at_engine_address.url:
        return None
    try:
        counters = openai_api.counters(model.at_engine_address, None, _ANSWER_S)
    except openai_api.NotReady:
        return None
    return counters.outstanding if counters else None
