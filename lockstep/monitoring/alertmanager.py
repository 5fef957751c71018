"""The configuration of Alertmanager: its receivers, and the words of one message for each alert.

Secrets are not in it: Alertmanager reads them from credentials of its unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from lockstep.files.managed_file import CONFIGURATION, MARK
from lockstep.inventory.receivers import Receiver
from lockstep.inventory.secret import SecretSource
from lockstep.inventory.settings import Settings

UNIT = "lockstep-alertmanager.service"
#: Folder of systemd for the credentials of that unit.
_CREDENTIALS = f"/run/credentials/{UNIT}"
# Time until an alert that is still there is told again.
_AGAIN = "24h"
_SUBJECT = (
    '{{ if eq .Status "resolved" }}Over: {{ end }}{{ (index .Alerts 0).Annotations.summary }}'
)
_TEXT = "{{ range .Alerts }}{{ .Annotations.summary }}\n\n{{ .Annotations.description }}\n{{ end }}"


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
    all_receivers = receivers(settings)
    whole = {
        "route": {
            # An alert goes to nobody where the inventory names nobody.
            "receiver": "nobody",
            # Each alert is a message of its own.
            "group_by": ["..."],
            "group_wait": "5s",
            "group_interval": "30s",
            "repeat_interval": _AGAIN,
            "routes": [
                # A test names its receiver; all other alerts are for everybody.
                {"receiver": name, "matchers": [f'receiver=~"|{name}"'], "continue": True}
                for name in all_receivers
            ],
        },
        "receivers": [{"name": "nobody"}, *(_receiver(*item) for item in all_receivers.items())],
    }
    text = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=10_000)
    return f"# {MARK}. Do not edit: the next deploy replaces it.\n{text}"


def _receiver(name: str, receiver: Receiver) -> dict[str, Any]:
    secret = f"{_CREDENTIALS}/{name}"
    if receiver.email:
        mail: dict[str, Any] = {
            "to": receiver.email,
            "from": receiver.sender,
            "smarthost": receiver.smarthost,
            "require_tls": receiver.starttls,
            "send_resolved": True,
            "headers": {"Subject": _SUBJECT},
            "text": _TEXT,
            "html": "",
        }
        if receiver.password:
            mail |= {"auth_username": receiver.user, "auth_password_file": secret}
        return {"name": name, "email_configs": [mail]}
    url = f"{receiver.ntfy}?template=alertmanager" if receiver.ntfy else receiver.webhook
    hook: dict[str, Any] = {"url": url, "send_resolved": True}
    if receiver.token:
        bearer = {"type": "Bearer", "credentials_file": secret}
        hook["http_config"] = {"authorization": bearer}
    return {"name": name, "webhook_configs": [hook]}
