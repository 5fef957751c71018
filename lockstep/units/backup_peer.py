"""Backups on the next Spark: its listener for them, and the way there.

The listener is a second sshd, which knows one account, one key and one folder, and listens only on
the fast link. The system's sshd stays as it is.
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
from lockstep.files.templating import render_template
from lockstep.inventory.host import HostPlan
from lockstep.onhost.core.address_text import address_with_port
from lockstep.units.restart_key import with_restart_key

UNIT = "lockstep-backup-listener.service"
LISTENER = f"{CONFIGURATION}/backup-listener.conf"
#: File in which ssh of the host that is backed up finds address, key and host key.
WAY = "/etc/ssh/ssh_config.d/60-lockstep-backup.conf"
#: Root's own key for these backups, which never leaves the host.
PRIVATE = f"{CONFIGURATION}/secrets/backup-ssh"
#: Patterns of all files that are there only for backups, without the units.
FILES = (f"{CONFIGURATION}/backup[.-]*", f"{PRIVATE}*", WAY)
#: Commands that remove the account once the listener is off; the backups become root's.
CLOSED = (
    *("sh", "-c"),
    f"set -e; if [ -d {BACKUP_HOME} ]; then chown -R root:root {BACKUP_HOME}; fi; "
    f"if id {BACKUP_ACCOUNT} >/dev/null 2>&1; then userdel {BACKUP_ACCOUNT}; fi",
)


def ssh_alias(peer: str) -> str:
    """Return the name of a host's listener in ssh."""
    return f"{_file(peer)}.lockstep"


def public_key_path(of: str) -> str:
    """Return the path of the public half of a host's key, there and at its peer."""
    return f"{CONFIGURATION}/backup-of-{_file(of)}.pub"


def host_key_path(peer: str) -> str:
    """Return the path of the listener's host key as ssh knows it, on both hosts."""
    return f"{CONFIGURATION}/backup-listener-of-{_file(peer)}.known"


def _file(host: str) -> str:
    return host.lstrip("@").replace("/", "-")


def peer_files(plan: HostPlan) -> Iterator[ManagedFile]:
    """Yield configuration and unit of the listener, and of the way to a peer's."""
    partners = plan.backups
    if partners.peer:
        way = render_template(
            "system/backup-way.conf.j2",
            alias=ssh_alias(partners.peer.name),
            peer=partners.peer,
            account=BACKUP_ACCOUNT,
            key=PRIVATE,
            known=host_key_path(partners.peer.name),
        )
        yield ManagedFile(WAY, way, stage="switch")
    if partners.of:
        listener = render_template(
            "system/backup-listener.conf.j2",
            address=address_with_port(str(plan.settings.fabric_address), plan.settings.backup.port),
            account=BACKUP_ACCOUNT,
            of=partners.of,
            key=public_key_path(partners.of.name),
            home=BACKUP_HOME,
        )
        yield ManagedFile(LISTENER, listener, stage="switch")
        unit = with_restart_key(
            "units/backup-listener.service.j2",
            contents=listener,
            of=partners.of,
            account=BACKUP_ACCOUNT,
            home=BACKUP_HOME,
            folder=f"{BACKUP_HOME}/{partners.of.name}",
            configuration=LISTENER,
        )
        yield unit_file(UNIT, unit)
