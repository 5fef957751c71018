"""What runs: the hot models with their requests, and how busy and how warm the machine is."""

from __future__ import annotations

import re
import time
from typing import Any

from lockstep.onhost.core import config, errors, layout
from lockstep.onhost.engine import openai_api
from lockstep.onhost.facts.reading import document, run, states
from lockstep.onhost.facts.units import generation
from lockstep.onhost.system import gpu
from lockstep.onhost.systemd import units as systemd

_LOOK_S = 0.5
_ANSWER_S = 3.0
_PROPERTIES = "Id,ActiveState,MainPID,InvocationID,Environment"


def _processors() -> tuple[int, int]:
    with open("/proc/stat", encoding="ascii") as text:
        times = [int(word) for word in text.readline().split()[1:9]]
    return sum(times), times[3] + times[4]


def _busy() -> float:
    total, idle = _processors()
    time.sleep(_LOOK_S)
    later, still = _processors()
    return 1 - (still - idle) / max(1, later - total)


def _hot(units: list[str]) -> dict[str, Any]:
    shown = run("systemctl", "show", f"--property={_PROPERTIES}", "--", *units) if units else None
    for name, state in states(shown.stdout if shown else "").items():
        if state.get("ActiveState") == "active":
            written = re.search(r"LOCKSTEP_GENERATION=([0-9a-f]+)", state.get("Environment", ""))
            return {
                "hot": name,
                "started": state.get("InvocationID"),
                "generation": generation(state) or None,
                "written": written[1] if written else None,
            }
    return {}


def _gpu() -> dict[str, Any]:
    seen = gpu.look()
    slowed = None if seen.reasons is None else bool(seen.heat or seen.reasons & gpu.POWER_CAP)
    return {"temperature_c": seen.temperature_c, "sm_mhz": seen.clock_mhz, "throttled": slowed}


def _compiled(unit: str | None, pattern: str) -> str | None:
    if not (unit and pattern):
        return None
    look = ("journalctl", "-q", "--no-pager", "-u", unit, "--since=-1h", "-o", "short-iso-precise")
    done = run(*look)
    found = [line for line in done.stdout.splitlines() if re.search(pattern, line)]
    return (found or [""])[-1] if done.returncode == 0 else None


def _tensors(index: str, pattern: str) -> dict[str, int] | None:
    names = (document(index) or {}).get("weight_map")
    if names is None:
        return None
    return {"all": len(names), "vision": sum(bool(re.search(pattern, name)) for name in names)}


def read(asked: dict[str, Any]) -> dict[str, Any]:
    """The "targets" as the deploy bound them, the "hot" unit with the "generation" that it runs and
    the one its file asks for ("written"), how "busy" the processors are while nothing is asked, the
    GPU's clock and temperature, and the last line of the last hour that says that a kernel was
    "compiled". Asked: Path of the "targets", and a pattern of what the engine's log says when it
    compiles a kernel ("compiled"). Where there is the path of an "index", the "tensors" of that
    weight map are told instead of the last four, and how many match "vision".
    """
    targets = (document(asked["targets"]) or {}).get("targets", {})
    found = {"targets": targets, **_hot([target["unit"] for target in targets.values()])}
    if asked.get("index"):
        return {**found, "tensors": _tensors(asked["index"], asked["vision"])}
    last = _compiled(found.get("hot"), asked.get("compiled", ""))
    return {**found, "busy": _busy(), **_gpu(), "compiled": last}


def models(_: object) -> dict[str, dict[str, Any]]:
    """Unit → "name", and "requests" under way, null where that cannot be told. Asked: nothing."""
    try:
        targets = config.load_host(layout.Paths().targets).targets.values()
    except errors.Problem:
        # Of an earlier Lockstep, or of none.
        return {}
    states = systemd.show([target.unit for target in targets])
    return {
        target.unit: {"name": target.name, "requests": _requests(target)}
        for target in targets
        if states[target.unit].state not in ("off", "failed")
    }


def _requests(target: config.Target) -> int | None:
    if not target.itself.url:
        return None
    try:
        counters = openai_api.counters(target.itself, None, _ANSWER_S)
    except openai_api.NotReady:
        return None
    return counters.outstanding if counters else None
