"""Restart keys: units that run with an older file, and the restart of the gateway."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from lockstep.onhost.core import errors, event_lines, layout, process_liveness
from lockstep.onhost.systemd import units

GATEWAY = "lockstep-gateway.service"
GATEWAY_SOCKET = "lockstep-gateway.socket"  #: Its ports, which systemd keeps open over restarts.
_VARIABLE = "LOCKSTEP_RESTART_KEY"


def written_restart_key(text: str) -> str:
    """Return the restart key in the text of a unit or of its variables; "" without one."""
    match = re.search(f"{_VARIABLE}=([0-9a-f]+)", text)
    return match[1] if match else ""


def running_restart_key(unit: units.Unit, proc: Path = Path("/proc")) -> str:
    """Return the restart key with which a unit's process was started; "" without one."""
    # A unit whose gate still waits for memory has no main process yet.
    for pid in (unit.main_pid, unit.control_pid):
        with suppress(OSError):
            return process_liveness.variables(pid, proc).get(_VARIABLE, "")
    return ""


def is_written_after(path: str | Path, since: float) -> bool:
    """Tell whether a file was written after a start.

    The start is known to the second; a file that was written in that second counts as read.
    """
    with suppress(OSError):
        return Path(path).stat().st_mtime >= since + 1
    return False


def has_outdated_key(unit: units.Unit, paths: layout.Paths) -> bool:
    """Tell whether a unit that is up was started with another restart key than its file's.

    A socket has no process: it is old if its file was written after it was opened.
    """
    file = paths.root / "etc/systemd/system" / unit.name
    try:
        if unit.name.endswith(".socket"):
            return unit.enter_time is not None and is_written_after(file, unit.enter_time)
        wanted_key = written_restart_key(file.read_text(encoding="utf-8"))
    except OSError:
        return True
    return running_restart_key(unit, paths.proc) != wanted_key


def bring_gateway_up_to_date(paths: layout.Paths) -> None:
    """Bring the gateway and its ports up to date with their files, or end them without these.

    Faults are reported only: no model is stopped for them.
    """
    # The ports first: systemd restarts the gateway with them.
    for name in (GATEWAY_SOCKET, GATEWAY):
        try:
            unit = units.units_by_name([name])[name]
            if not (paths.root / "etc/systemd/system" / name).exists():
                verb = "stop" if unit.up else ""
            else:
                verb = "" if unit.up and not has_outdated_key(unit, paths) else "restart"
            if verb:
                units.control_units(verb, name)
                event_lines.say(f"{verb} of {name}")
        except errors.Problem as problem:
            event_lines.say(f"{name}: {problem}")
