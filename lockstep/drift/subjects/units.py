"""Drift of systemd's units: the deploy's, the system's that it needs, and the units at boot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from lockstep.drift.subjects.settings import READ_AT_START
from lockstep.files.managed_file import API_KEY, WEBUI_SECRETS
from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import units
from lockstep.onhost.records import model_of_boot
from lockstep.onhost.switching import switch_job
from lockstep.resources.kind import DriftRow, Expectation, How, Kind, SubjectView
from lockstep.system.base_files import SYSTEM_SERVICES, docker_restart_key, system_units
from lockstep.system.folders import wanted_restart_key

#: The units without which Docker does not answer, in the order of their start.
_DOCKER = ("containerd.service", "docker.socket", "docker.service")


def _unmask(row: DriftRow) -> tuple[str, ...]:
    return ("systemctl", "unmask", row.item) if row.found == "masked" else ()


def _by_whom(row: DriftRow) -> How:
    """Return "deploy" for an existing unit, except for Docker's, without which a deploy refuses."""
    answers = row.item not in _DOCKER or row.found == units.OFF_AT_BOOT
    return "deploy" if row.found and answers else "by hand"


def _reread(row: DriftRow) -> How:
    """Return "deploy" for Lockstep's units, which a deploy rereads; "by hand" for the system's."""
    return "by hand" if row.item in SYSTEM_SERVICES else "deploy"


def _turn_on(row: DriftRow) -> tuple[str, ...]:
    # A masked unit keeps the others from starting.
    names = _DOCKER if row.item in _DOCKER else (row.item,)
    on = 'systemctl unmask "$@" && systemctl enable --now "$@"'
    return ("sh", "-c", on, "sh", *names) if row.found else ()


def _other_path(row: DriftRow) -> tuple[str, ...]:
    # Only its package should remove a package's file, so people look at it.
    is_packaged = (row.found or "").startswith(("/usr/lib/", "/lib/"))
    return ("systemctl", "cat", row.item) if is_packaged else ("rm", str(row.found))


def _drop_in(row: DriftRow) -> tuple[str, ...]:
    unit, _, path = row.item.partition(" ")
    if unit in SYSTEM_SERVICES:
        # Its author may need it, so people look at it.
        return ("systemctl", "cat", unit)
    if path.startswith(("/etc/systemd/system.control/", "/run/systemd/system.control/")):
        return ("systemctl", "revert", unit)
    return ("sh", "-c", 'rm "$0" && systemctl daemon-reload', path)


KINDS = {
    # The deploy writes a missing unit.
    "unit": Kind(units.every, "error", lambda row: "by hand" if row.found else "deploy", _unmask),
    "unit path": Kind(units.every, "error", mend=_other_path, scope="nothing"),
    "boot": Kind(units.every, "error", "deploy", scope="nothing"),
    "running": Kind(units.every, "error", "deploy", scope="nothing"),
    "system service": Kind(units.every, "error", _by_whom, _turn_on, scope="nothing"),
    "restart key": Kind(units.every, "error", "deploy", scope="nothing"),
    "unread unit": Kind(units.every, how=_reread, mend="systemctl daemon-reload", scope="odd"),
    "drop-in": Kind(units.every, "error", mend=_drop_in, scope="odd"),
    "failed unit": Kind(
        units.failed_units, "error", mend="journalctl -b -n 50 -u {item}", scope="odd"
    ),
    "ended engine": Kind(
        units.ended_engines, "error", mend="journalctl -b -n 50 -u lockstep-memory", scope="odd"
    ),
    "service": Kind(units.at_boot),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    settings = desired_state.plan.settings
    keys = [API_KEY] if desired_state.key_users else []
    secrets = [WEBUI_SECRETS] if settings.webui.enabled else []
    return {
        units.every: {
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
    files = desired_state.all_files
    for file in (
        file for file in files if PurePosixPath(file.path).name in desired_state.unit_files
    ):
        name = PurePosixPath(file.path).name
        yield Expectation("unit", name, "loaded")
        yield Expectation("unit path", name, file.path, if_there=True)
        # A unit with a place in the boot must run; a model has none.
        at_boot = "\n[Install]\n" in file.text
        yield Expectation("boot", name, "yes" if at_boot else "no", if_there=True)
        # This unit does nothing before the next boot.
        if at_boot and name != model_of_boot.UNIT:
            yield Expectation("running", name, "yes")
        restart_key = wanted_restart_key(files, name)
        if restart_key:
            yield Expectation("restart key", name, restart_key, if_there=True)
    # `status`, the page and alerts report a failed switch or model until the next switch.
    for name in (switch_job.UNIT, *desired_state.model_units):
        yield Expectation("failed unit", name, "failed", if_there=True)
    for name in system_units(desired_state.plan.settings):
        yield Expectation("system service", name, units.ON)
    docker = docker_restart_key(desired_state.plan.settings)
    yield Expectation("restart key", "docker.service", docker, if_there=True)
