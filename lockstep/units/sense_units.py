"""The units of the daily look whether the hot model makes sense."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.files.managed_file import SYSTEMD, ManagedFile, command
from lockstep.files.templating import render
from lockstep.units.variants import Variant

UNIT = "lockstep-sense"
TIMER = f"{UNIT}.timer"
# The program asks once a day; most of the times the engine is busy, or was asked already.
EVERY_S = 3600
# Two looks, each of five answers.
_LIMIT_S = 3600


def sense_units(variants: Sequence[Variant]) -> tuple[ManagedFile, ...]:
    """The service and its timer; () where no target of the host is asked."""
    asked = [
        variant
        for variant in variants
        if variant.target.answers and variant.target.data.sense != "off"
    ]
    if not asked:
        return ()
    start = command("sense", "--rest")
    service = render("units/sense.service.j2", start=start, limit_s=_LIMIT_S)
    timer = render("units/sense.timer.j2", every_s=EVERY_S)
    return (
        ManagedFile(f"{SYSTEMD}/{UNIT}.service", service, check="unit", stage="switch"),
        ManagedFile(f"{SYSTEMD}/{TIMER}", timer, check="unit", stage="switch"),
    )
