"""Restart keys: units that run with an older file, and the restart of the gateway."""

from __future__ import annotations

import re

from lockstep.onhost.core import errors, event_lines, layout, process_liveness
from lockstep.onhost.systemd import units

GATEWAY = "lockstep-gateway.service"
GATEWAY_SOCKET = "lockstep-gateway.socket"  #: Its ports, which systemd keeps open over restarts.
_RESTART_KEY = re.compile(r"LOCKSTEP_RESTART_KEY=([0-9a-f]+)")


def has_outdated_key(unit: units.Unit, paths: layout.Paths) -> bool:
    """Tell whether a unit that is up was started with another restart key than its file's.

    A socket has no process: it is old if its file was written after it was opened, which is known
    to the second. A file written in that second counts as read.
    """
    file = paths.root / "etc/systemd/system" / unit.name
    try:
        if unit.name.endswith(".socket"):
            return unit.enter_time is not None and file.stat().st_mtime >= unit.enter_time + 1
        match = _RESTART_KEY.search(file.read_text(encoding="utf-8"))
        variables = process_liveness.variables(unit.main_pid, paths.proc)
    except OSError:
        return True
    return variables.get("LOCKSTEP_RESTART_KEY") != (match and match[1])


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
