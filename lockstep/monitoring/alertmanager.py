"""The configuration of Alertmanager: its receivers, and their secrets on a host.

Secrets are not in its file: Alertmanager reads them from credentials of its unit.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.files.managed_file import CONFIGURATION
from lockstep.files.templating import render_template
from lockstep.inventory.receivers import Receiver
from lockstep.inventory.secret import SecretSource
from lockstep.inventory.settings import Settings

UNIT = "lockstep-alertmanager.service"
#: Folder of systemd for the credentials of that unit.
_CREDENTIALS = f"/run/credentials/{UNIT}"


def receivers(settings: Settings) -> dict[str, Receiver]:
    """Return name → receiver of the host's alerts."""
    told_receivers = settings.monitoring.tell if settings.monitoring.tells else ()
    return {f"{place}-{receiver.way}": receiver for place, receiver in enumerate(told_receivers, 1)}


def given_secrets(settings: Settings) -> Iterator[tuple[str, SecretSource, str]]:
    """Yield key of the inventory, source and path on the host of each receiver's secret."""
    for place, (name, receiver) in enumerate(receivers(settings).items()):
        for key in ("token", "password"):
            source = getattr(receiver, key)
            if source:
                yield f"monitoring.tell[{place}].{key}", source, credential_path(name)


def credentials(settings: Settings) -> dict[str, str]:
    """Return credential of Alertmanager's unit → file on the host."""
    return {
        name: credential_path(name)
        for name, receiver in receivers(settings).items()
        if receiver.token or receiver.password
    }


def credential_path(name: str) -> str:
    """Return the path on a host of a receiver's secret."""
    return f"{CONFIGURATION}/secrets/alerts-{name}"


def alertmanager_text(settings: Settings) -> str:
    """Return the file that Alertmanager reads on a host.

    It holds a topic's name, so it is for root alone.
    """
    return render_template(
        "monitoring/alertmanager.yml.j2", receivers=receivers(settings), credentials=_CREDENTIALS
    )
