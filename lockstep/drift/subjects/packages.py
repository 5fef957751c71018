"""Drift of the system's packages."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.drift.subjects.kind import Expectation, Kind, Seen, there
from lockstep.host.intended import Intended
from lockstep.onhost.facts import packages

KINDS = {
    "apt package": Kind(packages.every, "warning", "deploy"),
    "apt state": Kind(packages.every, "error", mend="dpkg --configure {item}", scope="odd"),
    "apt hold": Kind(packages.every),
    "alternative": Kind(packages.alternatives, "note"),
}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    for name in this.packages:
        yield there("apt package", name)
