"""The unit of the memory floor, which ends an engine before the host runs out of memory."""

from __future__ import annotations

from lockstep.files.managed_file import SYSTEMD, ManagedFile, command
from lockstep.files.programs import closure
from lockstep.units.restart_key import keyed

UNIT = "lockstep-memory.service"


def memory_unit() -> ManagedFile:
    """Enabled at boot, which starts no model."""
    text = keyed(
        "units/memory.service.j2",
        contents=closure("switching.memory_floor"),
        start=command("memory-floor"),
    )
    return ManagedFile(f"{SYSTEMD}/{UNIT}", text, check="unit", stage="switch")
