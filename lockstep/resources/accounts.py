"""Accounts, groups, and the ways in which people may log in."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from lockstep.files.managed_file import OPERATORS_GROUP
from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import accounts
from lockstep.resources.fact_comparison import (
    DriftRow,
    Expectation,
    Facts,
    Kind,
    SubjectView,
    any_value,
    rows_to_mend,
)
from lockstep.system.accounts import Account, people, system_accounts

_NO_SHELL = "/usr/sbin/nologin"


def _membership_command(row: DriftRow) -> tuple[str, ...]:
    name, _, group = row.item.partition(" in ")
    return ("gpasswd", "--add" if row.expected else "--delete", name, group)


def _how_to_keep(row: DriftRow) -> str:
    name, _, group = row.item.partition(" in ")
    key = "operators" if group == OPERATORS_GROUP else "docker_users"
    return "" if row.expected else f"To keep {name} in {group}: name it in `{key}`, and deploy."


KINDS = {
    "account": Kind(accounts.read, "note", "deploy"),
    "account home": Kind(accounts.read, "note", mend="usermod --home {expected} {item}", part=True),
    "account shell": Kind(accounts.read, mend="usermod --shell {expected} {item}", part=True),
    "group": Kind(accounts.read, "note", "deploy"),
    "member": Kind(accounts.read),
    # The deploy adds people to groups, and removes nobody from them.
    "right": Kind(
        accounts.read,
        "error",
        lambda row: "deploy" if row.expected else "by hand",
        _membership_command,
        keep=_how_to_keep,
        scope="odd",
    ),
    "password": Kind(accounts.read, part=True),
    "login key": Kind(accounts.read),
}


# Only people named in the inventory may be in these groups.
_RIGHTS = (OPERATORS_GROUP, "docker")


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """Return the question to the reader."""
    names = [account.name for account in wanted_accounts(desired_state)]
    return {accounts.read: {"names": names, "groups": [OPERATORS_GROUP], "rights": list(_RIGHTS)}}


def wanted_accounts(desired_state: DesiredState) -> list[Account]:
    """Return the accounts that a deploy makes, and those that it puts into groups."""
    plan = desired_state.plan
    return [*system_accounts(plan), *people(plan.settings)]


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """Yield the wanted accounts, groups and memberships."""
    adopted_things = desired_state.plan.settings.adopt
    yield from group_and_account_expectations(
        [OPERATORS_GROUP], wanted_accounts(desired_state), adopted_things
    )


def group_and_account_expectations(
    groups: Sequence[str], users: Sequence[Account], adopted_things: Container[str]
) -> Iterator[Expectation]:
    """Yield what these groups and accounts shall be; an adopted account keeps its home."""
    for group in groups:
        yield any_value("group", group)
    for user in users:
        if user.home:
            yield any_value("account", user.name)
            keeps_home = f"account {user.name}" in adopted_things
            accepts = (lambda _: True) if keeps_home else None
            yield Expectation("account home", user.name, user.home, accepts, if_there=True)
            yield Expectation("account shell", user.name, _NO_SHELL, if_there=True)
    for user in users:
        for group in user.groups:
            yield Expectation("right", f"{user.name} in {group}", "yes")


def commands(groups: Sequence[str], users: Sequence[Account], facts: Facts) -> list[list[str]]:
    """Return the commands that create missing groups and accounts, in order; [] for none."""
    rows = rows_to_mend(KINDS, group_and_account_expectations(groups, users, ()), facts)
    missing = {(kind, row.item) for kind, row in rows}
    made_accounts = [user for user in users if ("account", user.name) in missing]
    argvs = [["groupadd", "--system", group] for group in groups if ("group", group) in missing]
    for user in users:
        if user in made_accounts:
            # Neither account has a password; to sshd the usual "!" is an account that is locked.
            password = ("--password", "*") if user.by_key else ()
            groups_too = ("--groups", ",".join(user.groups)) if user.groups else ()
            argvs.append(
                [
                    *("useradd", "--system", "--user-group", "--shell", _NO_SHELL),
                    *("--home-dir", str(user.home), "--no-create-home", *password, *groups_too),
                    user.name,
                ]
            )
            continue
        # usermod knows only accounts of /etc/passwd, and not those of a directory (SSSD).
        argvs += [
            ["gpasswd", "--add", user.name, group]
            for group in user.groups
            if ("right", f"{user.name} in {group}") in missing
        ]
    return argvs
