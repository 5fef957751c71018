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
class UploadedSecret:
    """A secret that a deploy brings to a host.

    Attributes:
        key: Its key in the inventory.
        source: Its place on the operator's machine.
        host: The host that it is for.
        path: Its path on that host.
        mode: Permissions there, octal.
        group: Group there.
        lines: Whether it has several lines.
        ends_with_newline: Whether its file ends with a newline.
    """

    key: str
    source: secret.SecretSource
    host: str
    path: str
    mode: str = "0600"
    group: str = "root"
    lines: bool = False
    ends_with_newline: bool = True

    def secret_file(self) -> ManagedFile:
        """Return the file with the secret, as the host is to have it.

        Raises:
            LockstepError: the secret cannot be read.
        """
        text = secret.read(self.source, key=self.key, where=self.host, lines=self.lines)
        text += "\n" if self.ends_with_newline else ""
        return ManagedFile(self.path, text, mode=self.mode, group=self.group)


def uploaded_secrets_of(plan: HostPlan) -> Iterator[UploadedSecret]:
    """Yield the secrets that a deploy brings to a host."""
    settings = plan.settings
    if settings.hub_token:
        user = settings.service_user
        yield UploadedSecret("hub_token", settings.hub_token, plan.name, HUB_TOKEN, "0640", user)
    tls = settings.gateway.tls
    if isinstance(tls, Certificate) and tls.given_files:
        for name, source in zip(GIVEN, tls.given_files, strict=True):
            key = f"gateway.tls.{name}"
            yield UploadedSecret(key, source, plan.name, GIVEN[name], lines=True)
    if settings.backup.enabled and settings.backup.password:
        password_source = settings.backup.password
        yield UploadedSecret("backup.password", password_source, plan.name, backup_unit.PASSWORD)
    for key, source, path in receivers_secrets(settings):
        # Alertmanager 0.25 takes the whole file for the password, so no newline may end it.
        yield UploadedSecret(key, source, plan.name, path, ends_with_newline=False)
