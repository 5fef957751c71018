"""Drift of accounts, groups, and who may log in how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects.kind import Asking, Expectation, Kind, Row, Seen, there
from lockstep.files.managed_file import HOME, OPERATORS_GROUP
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.onhost.facts import accounts
from lockstep.system.accounts import people

# Groups that give rights: only whom the inventory names may be in them.
_RIGHTS = (OPERATORS_GROUP, "docker")


def _changed(option: str, row: Row) -> tuple[str, ...]:
    return ("usermod", option, row.expected, row.item) if row.expected and row.found else ()


def _member(row: Row) -> tuple[str, ...]:
    name, _, group = row.item.partition(" in ")
    return ("gpasswd", "--delete" if row.expected is None else "--add", name, group)


KINDS = {
    # Remove what the others do not have.
    "account": Kind(
        accounts.every,
        "note",
        "deploy",
        lambda row: ("userdel", row.item) if row.expected is None else (),
    ),
    "account home": Kind(
        accounts.every, "note", remedy=lambda row: _changed("--home", row), part=True
    ),
    "account shell": Kind(
        accounts.every, "warning", remedy=lambda row: _changed("--shell", row), part=True
    ),
    "group": Kind(
        accounts.every,
        "note",
        "deploy",
        lambda row: ("groupdel", row.item) if row.expected is None else (),
    ),
    "member": Kind(accounts.every, "warning", "deploy", _member),
    "right": Kind(
        accounts.every,
        "error",
        # The deploy puts people into groups, and takes nobody out.
        lambda row: "by hand" if row.expected is None else "deploy",
        _member,
        peers=False,
        closed=True,
    ),
    "password": Kind(
        accounts.every,
        "warning",
        remedy=lambda row: ("passwd", *(["--lock"] if row.expected == "locked" else []), row.item),
        part=True,
    ),
    "login key": Kind(
        accounts.every,
        "warning",
        remedy=lambda row: (
            *("-u", row.item.partition(":")[0]),
            *("sh", "-c", 'cat "$HOME"/.ssh/authorized_keys'),
        ),
    ),
}


def questions(this: Intended, asking: Asking) -> dict[Reader, Any]:
    """See `subjects.questions`."""
    return {accounts.every: {"key": asking.key, "rights": _RIGHTS}}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    settings = this.plan.settings
    yield there("group", OPERATORS_GROUP)
    yield there("account", settings.service_user)
    yield Expectation("account home", settings.service_user, HOME)
    yield Expectation("account shell", settings.service_user, "/usr/sbin/nologin")
    yield Expectation("right", f"{settings.service_user} in docker", "yes")
    for person in people(settings):
        for group in person.groups:
            yield Expectation("right", f"{person.name} in {group}", "yes")
