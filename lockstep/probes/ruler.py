"""What a measurement stands on.

Argument: {"targets": path, "index": path, "vision": regex, "compiled": regex}; all but `targets`
may be absent. `compiled` is what the engine's log says when it compiles a kernel.

Answers: the targets as the deploy bound them, the hot unit with the generation that it runs and the
one its file asks for, how busy the processors are while nothing is asked, the GPU's clock and
temperature, and the last line like `compiled` of the last hour; or instead of these four the
tensors of the weight map that `index` names.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import Any

LOOK_S = 0.5
PROPERTIES = "Id,ActiveState,MainPID,InvocationID,Environment"
# The reasons of a slow-down that are not "idle" and not an operator's own limit of the clock:
# power cap, hardware slow-down, thermal (software and hardware), power brake.
THROTTLED = 0x04 | 0x08 | 0x20 | 0x40 | 0x80


def run(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def processors() -> tuple[int, int]:
    with open("/proc/stat", encoding="ascii") as text:
        times = [int(word) for word in text.readline().split()[1:9]]
    return sum(times), times[3] + times[4]


def busy() -> float:
    total, idle = processors()
    time.sleep(LOOK_S)
    later, still = processors()
    return 1 - (still - idle) / max(1, later - total)


def generation(text: str) -> str | None:
    found = re.search(r"LOCKSTEP_GENERATION=([0-9a-f]+)", text)
    return found[1] if found else None


def hot(units: list[str]) -> dict[str, Any]:
    shown = run("systemctl", "show", f"--property={PROPERTIES}", "--", *units) if units else ""
    for block in shown.strip().split("\n\n"):
        state = dict(line.partition("=")[::2] for line in block.splitlines())
        if state.get("ActiveState") != "active":
            continue
        try:
            with open(f"/proc/{state['MainPID']}/environ", "rb") as text:
                environ = text.read().decode(errors="replace")
        except OSError:
            environ = ""
        return {
            "hot": state["Id"],
            "started": state.get("InvocationID"),
            "generation": generation(environ),
            "written": generation(state.get("Environment", "")),
        }
    return {}


def gpu() -> dict[str, Any]:
    found: dict[str, Any] = {}
    names = ("temperature.gpu", "clocks.sm", "clocks_event_reasons.active")
    keys = ("temperature_c", "sm_mhz", "reasons")
    for name, key in zip(names, keys):
        text = run("nvidia-smi", f"--query-gpu={name}", "--format=csv,noheader,nounits").strip()
        try:
            found[key] = int(text, 16) if text.startswith("0x") else float(text)
        except ValueError:
            found[key] = None
    reasons = found.pop("reasons")
    found["throttled"] = None if reasons is None else bool(int(reasons) & THROTTLED)
    return found


def compiled(unit: str | None, pattern: str) -> str | None:
    if not (unit and pattern):
        return None
    look = ("journalctl", "-q", "--no-pager", "-u", unit, "--since=-1h", "-o", "short-iso-precise")
    try:
        done = subprocess.run(look, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = [line for line in done.stdout.splitlines() if re.search(pattern, line)]
    return (found or [""])[-1] if done.returncode == 0 else None


def tensors(index: str, pattern: str) -> dict[str, int] | None:
    try:
        with open(index, encoding="utf-8") as text:
            names = json.load(text)["weight_map"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return {"all": len(names), "vision": sum(bool(re.search(pattern, name)) for name in names)}


def main(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        with open(asked["targets"], encoding="utf-8") as text:
            targets = json.load(text)["targets"]
    except (OSError, ValueError, LookupError):
        targets = {}
    found = {"targets": targets, **hot([target["unit"] for target in targets.values()])}
    if asked.get("index"):
        return {**found, "tensors": tensors(asked["index"], asked["vision"])}
    last = compiled(found.get("hot"), asked.get("compiled", ""))
    return {**found, "busy": busy(), **gpu(), "compiled": last}
