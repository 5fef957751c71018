"""The units of the nightly backup, and what its program reads."""

from __future__ import annotations

import json
from dataclasses import asdict

from lockstep.files.managed_file import CONFIGURATION, SYSTEMD, ManagedFile, command
from lockstep.files.templating import render
from lockstep.inventory.backup import TWIN
from lockstep.inventory.neighbours import Partners
from lockstep.inventory.settings import Settings
from lockstep.onhost.records.restic import Config
from lockstep.units import backup_twin

UNIT = "lockstep-backup"
PASSWORD = f"{CONFIGURATION}/secrets/backup.key"


def backup_units(settings: Settings, partners: Partners | None = None) -> tuple[ManagedFile, ...]:
    """Configuration, service and timer; () where there is no backup."""
    backup, webui = settings.backup, settings.webui
    if not backup.enabled:
        return ()
    found = Config(
        to=tuple(_place(place, settings.name, partners or Partners()) for place in backup.to),
        keep={
            "daily": backup.keep_daily,
            "weekly": backup.keep_weekly,
            "monthly": backup.keep_monthly,
        },
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
        ManagedFile(f"{SYSTEMD}/{UNIT}.service", service, check="unit", stage="switch"),
        ManagedFile(f"{SYSTEMD}/{UNIT}.timer", timer, check="unit", stage="switch"),
    )


def _place(place: str, name: str, partners: Partners) -> str:
    """A destination as restic names it, with a folder of the host's own."""
    if place == TWIN and partners.twin:
        place = f"sftp:{backup_twin.alias(partners.twin.name)}:"
    return f"{place}/{name}"
