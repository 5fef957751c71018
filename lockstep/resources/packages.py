"""The system's packages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import packages
from lockstep.resources.fact_comparison import (
    Expectation,
    Facts,
    Kind,
    SubjectView,
    any_value,
    rows_to_mend,
)

KINDS = {
    "apt package": Kind(packages.read, "warning", "deploy"),
    "apt state": Kind(packages.read, "error", mend="dpkg --configure {item}", scope="odd"),
    "apt hold": Kind(packages.read),
    "alternative": Kind(packages.alternatives, "note"),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """Return the question to the reader."""
    return {packages.read: {"names": desired_state.packages}}


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """Yield the wanted packages, of any version."""
    yield from _package_expectations(desired_state.packages)


def _package_expectations(names: Sequence[str]) -> Iterator[Expectation]:
    for name in names:
        yield any_value("apt package", name)


def missing_packages(names: Sequence[str], facts: Facts) -> list[str]:
    """Return those of the packages that a deploy installs."""
    return [row.item for _, row in rows_to_mend(KINDS, _package_expectations(names), facts)]
