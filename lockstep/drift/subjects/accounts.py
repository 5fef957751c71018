"""Drift of accounts, groups, and the ways in which people may log in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects.kind import DriftRow, Expectation, Kind, SubjectView, any_value
from lockstep.files.managed_file import OPERATORS_GROUP
from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import accounts
from lockstep.system.accounts import people, system_accounts


def _member(row: DriftRow) -> tuple[str, ...]:
    name, _, group = row.item.partition(" in ")
    return ("gpasswd", "--add" if row.expected else "--delete", name, group)


def _how_to_keep(row: DriftRow) -> str:
    name, _, group = row.item.partition(" in ")
    key = "operators" if group == OPERATORS_GROUP else "docker_users"
    return "" if row.expected else f"To keep {name} in {group}: name it in `{key}`, and deploy."


KINDS = {
    "account": Kind(accounts.every, "note", "deploy"),
    "account home": Kind(
        accounts.every, "note", mend="usermod --home {expected} {item}", part=True
    ),
    "account shell": Kind(accounts.every, mend="usermod --shell {expected} {item}", part=True),
    "group": Kind(accounts.every, "note", "deploy"),
    "member": Kind(accounts.every),
    # The deploy adds people to groups, and removes nobody from them.
    "right": Kind(
        accounts.every,
        "error",
        lambda row: "deploy" if row.expected else "by hand",
        _member,
        keep=_how_to_keep,
        scope="odd",
    ),
    "password": Kind(accounts.every, part=True),
    "login key": Kind(accounts.every),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    # Only people named in the inventory may be in these groups.
    return {accounts.every: {"rights": [OPERATORS_GROUP, "docker"]}}


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    settings = desired_state.plan.settings
    yield any_value("group", OPERATORS_GROUP)
    for account in system_accounts(desired_state.plan):
        yield any_value("account", account.name)
        yield Expectation("account home", account.name, account.home or "")
        yield Expectation("account shell", account.name, "/usr/sbin/nologin")
    for account in (*system_accounts(desired_state.plan), *people(settings)):
        for group in account.groups:
            yield Expectation("right", f"{account.name} in {group}", "yes")
