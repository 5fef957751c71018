"""Backups that go to the next Spark: its door for them, and the way there.

The door is a second sshd, which knows one account, one key and one folder, and listens on the fast
link alone. The system's sshd stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.files.managed_file import (
    BACKUP_ACCOUNT,
    BACKUP_HOME,
    CONFIGURATION,
    ManagedFile,
    unit_file,
)
from lockstep.files.templating import render
from lockstep.inventory.host import HostPlan
from lockstep.onhost.core.address import at
from lockstep.units.restart_key import keyed

UNIT = "lockstep-backup-door.service"
DOOR = f"{CONFIGURATION}/backup-door.conf"
#: Where ssh of the host that is backed up finds address, key and host key.
WAY = "/etc/ssh/ssh_config.d/60-lockstep-backup.conf"
#: Root's own key for it, which never leaves the host.
PRIVATE = f"{CONFIGURATION}/secrets/backup-ssh"
#: Patterns of everything that is there for backups alone, but for the units.
FILES = (f"{CONFIGURATION}/backup[.-]*", f"{PRIVATE}*", WAY)
#: What takes the account away once the door is closed; the backups become root's.
CLOSED = (
    *("sh", "-c"),
    f"set -e; if [ -d {BACKUP_HOME} ]; then chown -R root:root {BACKUP_HOME}; fi; "
    f"if id {BACKUP_ACCOUNT} >/dev/null 2>&1; then userdel {BACKUP_ACCOUNT}; fi",
)


def alias(twin: str) -> str:
    """What ssh calls a host's door."""
    return f"{_file(twin)}.lockstep"


def public_path(of: str) -> str:
    """The public half of a host's key, there and at its twin."""
    return f"{CONFIGURATION}/backup-of-{_file(of)}.pub"


def door_path(twin: str) -> str:
    """The host key of a twin's door as ssh knows it, there and where its backups come from."""
    return f"{CONFIGURATION}/backup-door-of-{_file(twin)}.known"


def _file(host: str) -> str:
    return host.lstrip("@").replace("/", "-")


def twin_files(plan: HostPlan) -> Iterator[ManagedFile]:
    """Configuration and unit of the door, and of the way to another one."""
    partners = plan.backups
    if partners.twin:
        way = render(
            "system/backup-way.conf.j2",
            alias=alias(partners.twin.name),
            twin=partners.twin,
            account=BACKUP_ACCOUNT,
            key=PRIVATE,
            known=door_path(partners.twin.name),
        )
        yield ManagedFile(WAY, way, stage="switch")
    if partners.of:
        door = render(
            "system/backup-door.conf.j2",
            address=at(str(plan.settings.fabric_address), plan.settings.backup.port),
            account=BACKUP_ACCOUNT,
            of=partners.of,
            key=public_path(partners.of.name),
            home=BACKUP_HOME,
        )
        yield ManagedFile(DOOR, door, stage="switch")
        unit = keyed(
            "units/backup-door.service.j2",
            contents=door,
            of=partners.of,
            account=BACKUP_ACCOUNT,
            home=BACKUP_HOME,
            folder=f"{BACKUP_HOME}/{partners.of.name}",
            configuration=DOOR,
        )
        yield unit_file(UNIT, unit)
