"""Whether a unit runs with its file as it is now, and the gateway made to do so."""

from __future__ import annotations

import re

from lockstep.onhost.core import errors, layout, output, runner
from lockstep.onhost.systemd import units

GATEWAY = "lockstep-gateway.service"
_GENERATION = re.compile(r"LOCKSTEP_GENERATION=([0-9a-f]+)")


def old(unit: units.Unit, paths: layout.Paths) -> bool:
    """Whether a unit that is up was started with another restart key than its file's."""
    try:
        file = paths.root / "etc/systemd/system" / unit.name
        wanted = _GENERATION.search(file.read_text(encoding="utf-8"))
        environment = (paths.proc / str(unit.main_pid) / "environ").read_text(errors="replace")
    except OSError:
        return True
    running = _GENERATION.search(environment)
    return (running and running[1]) != (wanted and wanted[1])


def gateway_in_force(paths: layout.Paths) -> None:
    """Have the gateway run with its file as it is now, or end where that is gone.

    What goes wrong is said: no model is stopped for it.
    """
    try:
        unit = units.show([GATEWAY])[GATEWAY]
        if not (paths.root / "etc/systemd/system" / GATEWAY).exists():
            verb = "stop" if unit.up else ""
        else:
            verb = "" if unit.up and not old(unit, paths) else "restart"
        if verb:
            done = runner.run(["systemctl", verb, "--", GATEWAY], timeout=120)
            failed = f" failed: {done.stderr.strip()}" if done.returncode else ""
            output.say(f"{verb} of {GATEWAY}{failed}")
    except errors.Problem as problem:
        output.say(f"{GATEWAY}: {problem}")
