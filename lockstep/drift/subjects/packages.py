"""Drift of the system's packages."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.drift.subjects.kind import Expectation, Kind, SubjectView, any_value
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import packages

KINDS = {
    "apt package": Kind(packages.every, "warning", "deploy"),
    "apt state": Kind(packages.every, "error", mend="dpkg --configure {item}", scope="odd"),
    "apt hold": Kind(packages.every),
    "alternative": Kind(packages.alternatives, "note"),
}


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    for name in desired_state.packages:
        yield any_value("apt package", name)
