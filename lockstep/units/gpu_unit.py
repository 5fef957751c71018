"""The unit that caps the GPU's clock, where the inventory asks for it."""

from __future__ import annotations

from lockstep.files.managed_file import SYSTEMD, ManagedFile
from lockstep.files.templating import render
from lockstep.inventory.settings import Settings
from lockstep.onhost.system.gpu import CAP_UNIT


def gpu_unit(settings: Settings) -> tuple[ManagedFile, ...]:
    """The service; () without a cap. It starts at boot, and its stop lifts the cap."""
    clock = settings.gpu.max_clock_mhz
    if clock is None:
        return ()
    text = render("units/gpu-cap.service.j2", clock=clock)
    return (ManagedFile(f"{SYSTEMD}/{CAP_UNIT}", text, check="unit", stage="switch"),)
