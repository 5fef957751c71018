"""Groups and system accounts: from what is asked for and what there is to commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    """An account and the groups it must be in.

    Attributes:
        name: Login name.
        groups: Supplementary groups; others that it is in stay.
        home: Home folder of a system account that is created where it is missing, without the
            folder; None: the account must exist already.
        by_key: Whether somebody logs in as it, with a key.
    """

    name: str
    groups: tuple[str, ...]
    home: str | None = None
    by_key: bool = False


def ours(plan: HostPlan) -> list[Account]:
    """The system accounts that a deploy makes: of the engines, the gateway, a twin's backups."""
    # The engine runs as a system account: logind removes the semaphores of a regular one.
    found = [
        Account(plan.settings.service_user, ("docker",), home=HOME),
        Account(GATEWAY_ACCOUNT, (), home=GATEWAY_HOME),
    ]
    if plan.backups.of:
        found.append(Account(BACKUP_ACCOUNT, (), home=BACKUP_HOME, by_key=True))
    return found


def people(settings: Settings) -> list[Account]:
    """Whom the inventory names, with their groups: to switch is one thing, Docker another."""
    names = dict.fromkeys((*settings.operators, *settings.docker_users))
    granted = {OPERATORS_GROUP: settings.operators, "docker": settings.docker_users}
    return [
        Account(name, tuple(group for group, members in granted.items() if name in members))
        for name in names
    ]


def account_commands(
    groups: Sequence[str], users: Sequence[Account], found: Mapping[str, Any]
) -> list[list[str]]:
    """Commands that bring groups and accounts about, in order; [] when nothing is missing.

    `found` is the answer of the reader `accounts` for these names.
    """
    commands = [["groupadd", "--system", name] for name in groups if found["groups"][name] is None]
    for user in users:
        have = found["accounts"][user.name]
        if have is None and user.home:
            # No password in either case; sshd takes the usual "!" for an account that is locked.
            password = ("--password", "*") if user.by_key else ()
            groups_too = ("--groups", ",".join(user.groups)) if user.groups else ()
            commands.append(
                [
                    *("useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin"),
                    *("--home-dir", user.home, "--no-create-home", *password, *groups_too),
                    user.name,
                ]
            )
            continue
        held = have["groups"] if have else []
        lacking = [name for name in user.groups if name not in held]
        # usermod knows accounts of /etc/passwd alone, and not those of a directory (SSSD).
        commands += [["gpasswd", "--add", user.name, name] for name in lacking]
    return commands
