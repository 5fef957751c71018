"""Drift of the system's packages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects.kind import ANY, Asking, Expectation, Kind, Row, Seen, there
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.onhost.facts import packages


def _install(row: Row) -> tuple[str, ...]:
    """The version that the others have; what they do not have goes."""
    if row.expected is None:
        return ("apt-get", "remove", row.item)
    exact = row.item if row.expected == ANY else f"{row.item}={row.expected}"
    return ("apt-get", "install", "--allow-downgrades", exact)


def _alternative(row: Row) -> tuple[str, ...]:
    return ("update-alternatives", "--set", row.item, row.expected) if row.expected else ()


KINDS = {
    "apt package": Kind(packages.every, "warning", "deploy", _install),
    "apt state": Kind(
        packages.every,
        "error",
        remedy=lambda _: ("dpkg", "--configure", "-a"),
        peers=False,
        closed=True,
    ),
    "apt hold": Kind(
        packages.every,
        "warning",
        remedy=lambda row: ("apt-mark", "unhold" if row.expected is None else "hold", row.item),
    ),
    "alternative": Kind(packages.alternatives, "note", remedy=_alternative),
}


def questions(this: Intended, asking: Asking) -> dict[Reader, Any]:
    """See `subjects.questions`."""
    return {packages.every: None, packages.alternatives: None}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    for name in this.plan.settings.packages:
        yield there("apt package", name)
