"""Whether a unit runs with its file as it is now, and the gateway made to do so, with its ports."""

from __future__ import annotations

import re

from lockstep.onhost.core import errors, layout, output, runner
from lockstep.onhost.systemd import units

GATEWAY = "lockstep-gateway.service"
GATEWAY_SOCKET = "lockstep-gateway.socket"  #: Its ports, which systemd keeps open over restarts.
_GENERATION = re.compile(r"LOCKSTEP_GENERATION=([0-9a-f]+)")


def old(unit: units.Unit, paths: layout.Paths) -> bool:
    """Whether a unit that is up was started with another restart key than its file's.

    A socket has no process: it is old where its file was written after it was opened, which is
    known to the second. What was written in that second counts as read.
    """
    file = paths.root / "etc/systemd/system" / unit.name
    try:
        if unit.name.endswith(".socket"):
            return unit.entered is not None and file.stat().st_mtime >= unit.entered + 1
        wanted = _GENERATION.search(file.read_text(encoding="utf-8"))
        environment = (paths.proc / str(unit.main_pid) / "environ").read_text(errors="replace")
    except OSError:
        return True
    running = _GENERATION.search(environment)
    return (running and running[1]) != (wanted and wanted[1])


def gateway_in_force(paths: layout.Paths) -> None:
    """Have the gateway and its ports be as their files are now, or end where these are gone.

    What goes wrong is said: no model is stopped for it.
    """
    # The ports first: systemd restarts the gateway with them.
    for name in (GATEWAY_SOCKET, GATEWAY):
        try:
            unit = units.show([name])[name]
            if not (paths.root / "etc/systemd/system" / name).exists():
                verb = "stop" if unit.up else ""
            else:
                verb = "" if unit.up and not old(unit, paths) else "restart"
            if verb:
                done = runner.run(["systemctl", verb, "--", name], timeout=120)
                failed = f" failed: {done.stderr.strip()}" if done.returncode else ""
                output.say(f"{verb} of {name}{failed}")
        except errors.Problem as problem:
            output.say(f"{name}: {problem}")
