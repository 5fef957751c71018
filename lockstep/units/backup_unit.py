"""The units of the nightly backup, and what its program reads."""

from __future__ import annotations

import json
from dataclasses import asdict

from lockstep.files.managed_file import CONFIGURATION, ManagedFile, command, unit_file
from lockstep.files.templating import render
from lockstep.inventory.backup import TWIN
from lockstep.inventory.host import HostPlan
from lockstep.onhost.records.restic import Config
from lockstep.units import backup_twin

UNIT = "lockstep-backup"
PASSWORD = f"{CONFIGURATION}/secrets/backup.key"


def backup_units(plan: HostPlan) -> tuple[ManagedFile, ...]:
    """Configuration, service and timer; () where there is no backup."""
    backup, webui = plan.settings.backup, plan.settings.webui
    if not backup.enabled:
        return ()
    found = Config(
        to=tuple(_place(place, plan) for place in backup.to),
        keep={each: getattr(backup, f"keep_{each}") for each in ("daily", "weekly", "monthly")},
        unit=f"{webui.unit}.service" if webui.enabled else "",
        volume=webui.volume if webui.enabled else "",
    )
    text = json.dumps(asdict(found), indent=1) + "\n"
    service = render(
        "units/backup.service.j2",
        start=command("backup", "now"),
        places=[place for place in backup.to if place.startswith("/")],
    )
    timer = render("units/backup.timer.j2", hour=backup.hour)
    return (
        ManagedFile(f"{CONFIGURATION}/backup.json", text, check="json"),
        unit_file(f"{UNIT}.service", service),
        unit_file(f"{UNIT}.timer", timer),
    )


def _place(place: str, plan: HostPlan) -> str:
    """A destination as restic names it, with a folder of the host's own."""
    if place == TWIN and plan.backups.twin:
        place = f"sftp:{backup_twin.alias(plan.backups.twin.name)}:"
    return f"{place}/{plan.settings.name}"
