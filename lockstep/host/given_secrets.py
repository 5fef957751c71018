"""Secrets that the operator's machine has and a deploy brings to a host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.files.managed_file import ManagedFile
from lockstep.inventory import secret
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Certificate
from lockstep.monitoring.alertmanager import given_secrets as receivers_secrets
from lockstep.system.folders import HUB_TOKEN
from lockstep.units import backup_unit
from lockstep.units.tls_unit import GIVEN


@dataclass(frozen=True)
class GivenSecret:
    """One such secret.

    Attributes:
        key: Its key in the inventory.
        source: Where the operator's machine has it.
        host: The host that it is for.
        path: Where that host has it.
        mode: Permissions there, octal.
        group: Group there.
        lines: Whether it has several lines.
        ended: Whether its file ends with the end of a line.
    """

    key: str
    source: secret.Source
    host: str
    path: str
    mode: str = "0600"
    group: str = "root"
    lines: bool = False
    ended: bool = True

    def fetched(self) -> ManagedFile:
        """The file as the host is to have it.

        Raises:
            LockstepError: the secret cannot be had.
        """
        text = secret.read(self.source, key=self.key, where=self.host, lines=self.lines)
        text += "\n" if self.ended else ""
        return ManagedFile(self.path, text, mode=self.mode, group=self.group)


def given_secrets(plan: HostPlan) -> Iterator[GivenSecret]:
    """The secrets that a deploy brings to a host."""
    settings = plan.settings
    if settings.hub_token:
        user = settings.service_user
        yield GivenSecret("hub_token", settings.hub_token, plan.name, HUB_TOKEN, "0640", user)
    tls = settings.gateway.tls
    if isinstance(tls, Certificate) and tls.given:
        for name, source in zip(GIVEN, tls.given, strict=True):
            key = f"gateway.tls.{name}"
            yield GivenSecret(key, source, plan.name, GIVEN[name], lines=True)
    if settings.backup.enabled and settings.backup.password:
        given = settings.backup.password
        yield GivenSecret("backup.password", given, plan.name, backup_unit.PASSWORD)
    for key, source, path in receivers_secrets(settings):
        # Alertmanager 0.25 takes a whole file for the password.
        yield GivenSecret(key, source, plan.name, path, ended=False)
