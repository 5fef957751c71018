"""The units of the nightly backup, and the files that its program reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from lockstep.core.findings import Finding
from lockstep.files.managed_file import CONFIGURATION, ManagedFile, command, unit_file
from lockstep.files.templating import render_template
from lockstep.inventory.backup import PEER
from lockstep.inventory.host import HostPlan
from lockstep.onhost.records.restic_client import Config
from lockstep.units import backup_peer

UNIT = "lockstep-backup"
#: Repository of each host on itself.
KEPT = "/var/lib/lockstep-deploy/backup"
PASSWORD = f"{CONFIGURATION}/secrets/backup.key"


def backup_units(plan: HostPlan) -> tuple[ManagedFile, ...]:
    """Return configuration, service and timer; () where there is no backup."""
    backup, webui = plan.settings.backup, plan.settings.webui
    if not backup.enabled:
        return ()
    config = Config(
        to=tuple(_restic_destination(place, plan) for place in backup.to),
        keep={
            period: getattr(backup, f"keep_{period}") for period in ("daily", "weekly", "monthly")
        },
        unit=f"{webui.unit}.service" if webui.enabled else "",
        volume=webui.volume if webui.enabled else "",
    )
    text = json.dumps(asdict(config), indent=1) + "\n"
    service = render_template(
        "units/backup.service.j2",
        start=command("backup", "now", "--nightly"),
        places=[place for place in backup.to if place.startswith("/")],
    )
    timer = render_template("units/backup.timer.j2", hour=backup.hour)
    return (
        ManagedFile(f"{CONFIGURATION}/backup.json", text, check="json"),
        unit_file(f"{UNIT}.service", service),
        unit_file(f"{UNIT}.timer", timer),
    )


def extra_backup_folders(plan: HostPlan) -> list[str]:
    """Return the folders on the host itself that its backups go to, besides its own repository."""
    return [place for place in plan.settings.backup.to if place.startswith("/")]


def one_disk_finding(plan: HostPlan, devices: Mapping[str, object] | None = None) -> Finding | None:
    """Return the finding that a host's backups are lost with its disk; None where they are not.

    `devices` is path → device of `KEPT` and `extra_backup_folders`. An unknown device (None)
    counts as another.
    """
    backup = plan.settings.backup
    known_devices = devices or {}
    elsewhere = [
        place
        for place in backup.to
        if not place.startswith("/")
        or not known_devices
        or known_devices.get(place, place) != known_devices.get(KEPT)
    ]
    if not backup.enabled or elsewhere:
        return None
    message = "its backups lie on its own disk alone, and are lost with it"
    remedy = (
        'Name a place elsewhere in `backup.to`: "peer", "sftp:USER@HOST:/FOLDER", or a folder on '
        "another disk (`lockstep help backup`)."
    )
    return Finding("backup-here", "warning", f"{plan.name} backup", message, remedy)


def _restic_destination(place: str, plan: HostPlan) -> str:
    """Return a destination in restic's form, with a folder of the host's own."""
    if place == PEER and plan.backups.peer:
        place = f"sftp:{backup_peer.ssh_alias(plan.backups.peer.name)}:"
    return f"{place}/{plan.settings.name}"
