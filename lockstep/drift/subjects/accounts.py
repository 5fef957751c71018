"""Drift of accounts, groups, and who may log in how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects.kind import Expectation, Kind, Row, Seen, there
from lockstep.files.managed_file import OPERATORS_GROUP
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.onhost.facts import accounts
from lockstep.system.accounts import ours, people


def _member(row: Row) -> tuple[str, ...]:
    name, _, group = row.item.partition(" in ")
    return ("gpasswd", "--add" if row.expected else "--delete", name, group)


def _how_to_keep(row: Row) -> str:
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
    # The deploy puts people into groups, and takes nobody out.
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


def questions(this: Intended) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    # Only whom the inventory names may be in them.
    return {accounts.every: {"rights": [OPERATORS_GROUP, "docker"]}}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    settings = this.plan.settings
    yield there("group", OPERATORS_GROUP)
    for account in ours(this.plan):
        yield there("account", account.name)
        yield Expectation("account home", account.name, account.home or "")
        yield Expectation("account shell", account.name, "/usr/sbin/nologin")
    for account in (*ours(this.plan), *people(settings)):
        for group in account.groups:
            yield Expectation("right", f"{account.name} in {group}", "yes")
