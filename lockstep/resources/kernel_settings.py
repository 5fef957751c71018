"""Kernel settings (sysctl) of the inventory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import machine
from lockstep.resources.fact_comparison import Expectation, Facts, Kind, SubjectView, rows_to_mend

KINDS = {"sysctl": Kind(machine.settings, "warning", "deploy")}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """Return the question to the reader."""
    return {machine.settings: {"names": list(desired_state.plan.settings.sysctls)}}


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """Yield the wanted values."""
    yield from _setting_expectations(desired_state.plan.settings.sysctls)


def _setting_expectations(values: Mapping[str, str]) -> Iterator[Expectation]:
    for name, value in values.items():
        yield Expectation("sysctl", name, value)


def commands(values: Mapping[str, str], path: str, facts: Facts) -> list[list[str]]:
    """Return the commands that give the kernel the values of a file; [] if it has them."""
    return (
        [["sysctl", "-q", "-p", path]]
        if rows_to_mend(KINDS, _setting_expectations(values), facts)
        else []
    )
