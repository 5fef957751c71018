"""The units of the wedge watch: a timer that looks whether the hot model generates."""

from __future__ import annotations

from lockstep.files.managed_file import SYSTEMD, ManagedFile, command
from lockstep.files.templating import render

UNIT = "lockstep-wedge"
TIMER = f"{UNIT}.timer"
EVERY_S = 60
# Two waits for a token (wedge.py: 120 s together) and a stop (at most 300 s), with room.
_LIMIT_S = 600


def wedge_units() -> tuple[ManagedFile, ...]:
    """The service and its timer; the timer starts at boot, which starts no model."""
    program = command("wedge")
    service = render("units/wedge.service.j2", start=program, limit_s=_LIMIT_S)
    timer = render("units/wedge.timer.j2", every_s=EVERY_S)
    return (
        ManagedFile(f"{SYSTEMD}/{UNIT}.service", service, check="unit", stage="switch"),
        ManagedFile(f"{SYSTEMD}/{TIMER}", timer, check="unit", stage="switch"),
    )
