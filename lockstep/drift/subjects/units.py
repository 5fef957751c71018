"""Drift of systemd's units that no deploy mends: changes by hand, failures, other units at boot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects.settings import READ_AT_START
from lockstep.files.managed_file import API_KEY, WEBUI_SECRETS
from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import units
from lockstep.onhost.switching import switch_commands
from lockstep.resources.fact_comparison import DriftRow, Expectation, Kind, SubjectView
from lockstep.system.base_files import SYSTEM_SERVICES, system_units


def _drop_in(row: DriftRow) -> tuple[str, ...]:
    unit, _, path = row.item.partition(" ")
    if unit in SYSTEM_SERVICES:
        # Its author may need it, so people look at it.
        return ("systemctl", "cat", unit)
    if path.startswith(("/etc/systemd/system.control/", "/run/systemd/system.control/")):
        return ("systemctl", "revert", unit)
    return ("sh", "-c", 'rm "$0" && systemctl daemon-reload', path)


KINDS = {
    "drop-in": Kind(units.changes_by_hand, "error", mend=_drop_in, scope="odd"),
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
    keys = [API_KEY] if desired_state.key_users else []
    secrets = [WEBUI_SECRETS] if settings.webui.enabled else []
    return {
        units.changes_by_hand: {
            "ours": desired_state.unit_files,
            "system": system_units(settings),
            "files": desired_state.paths,
            "reads": {
                **READ_AT_START,
                **desired_state.unit_programs,
                **{unit: keys for unit in desired_state.key_users},
                **{unit: secrets for unit in desired_state.webui_units},
            },
        },
        units.at_boot: {"known": [*desired_state.unit_files, *system_units(settings)]},
    }


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    # `status`, the page and alerts report a failed switch or model until the next switch.
    for name in (switch_commands.UNIT, *desired_state.model_units):
        yield Expectation("failed unit", name, "failed", if_there=True)
