"""Drift of the system's packages."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.drift.subjects.kind import ANY, Expectation, Kind, Row, Seen, there
from lockstep.host.intended import Intended
from lockstep.onhost.facts import packages


def _install(row: Row) -> tuple[str, ...]:
    exact = row.item if row.expected == ANY else f"{row.item}={row.expected}"
    return ("apt-get", "install", "--allow-downgrades", exact)


KINDS = {
    # The version that the others have.
    "apt package": Kind(
        packages.every, "warning", "deploy", _install, extra="apt-get remove {item}"
    ),
    "apt state": Kind(packages.every, "error", mend="dpkg --configure -a", scope="odd"),
    "apt hold": Kind(packages.every, mend="apt-mark hold {item}", extra="apt-mark unhold {item}"),
    "alternative": Kind(
        packages.alternatives, "note", mend="update-alternatives --set {item} {expected}"
    ),
}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    for name in this.packages:
        yield there("apt package", name)
