"""Accounts of a deploy: those that it makes, and the people that it puts into groups."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.files.managed_file import (
    BACKUP_ACCOUNT,
    BACKUP_HOME,
    GATEWAY_ACCOUNT,
    GATEWAY_HOME,
    HOME,
    OPERATORS_GROUP,
)
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Settings


@dataclass(frozen=True)
class Account:
    """An account and the groups that it must be in.

    Attributes:
        name: Login name.
        groups: Supplementary groups; its other groups stay.
        home: Home folder of a system account that is created where it is missing, without the
            folder; None: the account must exist already.
        by_key: Whether somebody logs in to it, with a key.
    """

    name: str
    groups: tuple[str, ...]
    home: str | None = None
    by_key: bool = False


def system_accounts(plan: HostPlan) -> list[Account]:
    """Return the system accounts that a deploy makes: for engines, gateway, a peer's backups."""
    # The engine runs as a system account: logind removes the semaphores of a regular one.
    accounts_made = [
        Account(plan.settings.service_user, ("docker",), home=HOME),
        Account(GATEWAY_ACCOUNT, (), home=GATEWAY_HOME),
    ]
    if plan.backups.of:
        accounts_made.append(Account(BACKUP_ACCOUNT, (), home=BACKUP_HOME, by_key=True))
    return accounts_made


def people(settings: Settings) -> list[Account]:
    """Return the persons' accounts with groups: one for switching, another for Docker."""
    names = dict.fromkeys((*settings.operators, *settings.docker_users))
    members_by_group = {OPERATORS_GROUP: settings.operators, "docker": settings.docker_users}
    return [
        Account(
            name, tuple(group for group, members in members_by_group.items() if name in members)
        )
        for name in names
    ]
