"""Drift of systemd's units that no deploy mends: failures, and other units at boot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import units
from lockstep.onhost.switching import switch_commands
from lockstep.resources.fact_comparison import Expectation, Kind, SubjectView
from lockstep.system.base_files import system_units

KINDS = {
    "failed unit": Kind(
        units.failed_units, "error", mend="journalctl -b -n 50 -u {item}", scope="odd"
    ),
    "ended engine": Kind(
        units.engines_ended_by_watch,
        "error",
        mend="journalctl -b -n 50 -u lockstep-memory",
        scope="odd",
    ),
    "service": Kind(units.at_boot),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    settings = desired_state.plan.settings
    return {
        units.at_boot: {"known": [*desired_state.unit_files, *system_units(settings)]},
    }


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    # `status`, the page and alerts report a failed switch or model until the next switch.
    for name in (switch_commands.UNIT, *desired_state.model_units):
        yield Expectation("failed unit", name, "failed", if_there=True)
