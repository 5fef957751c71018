"""systemd's units: the deploy's, and the system's that it needs."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from lockstep.files.managed_file import SYSTEMD, WEBUI_SECRETS
from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import units
from lockstep.onhost.records import models_by_boot
from lockstep.resources.fact_comparison import (
    DriftRow,
    Expectation,
    How,
    Kind,
    SubjectView,
    rows_to_mend,
    unmet_rows,
)
from lockstep.system.base_files import SYSTEM_SERVICES, docker_restart_key, system_units
from lockstep.system.folders import wanted_restart_key

#: The units without which Docker does not answer, in the order of their start.
_DOCKER = ("containerd.service", "docker.socket", "docker.service")
_RUNNING = ("active", "activating", "reloading")


def _unmask(row: DriftRow) -> tuple[str, ...]:
    return ("systemctl", "unmask", row.item) if row.found == "masked" else ()


def _service_way(row: DriftRow) -> How:
    """Return "deploy" for an existing unit, except for Docker's, without which a deploy refuses."""
    answers = row.item not in _DOCKER or row.found == units.OFF_AT_BOOT
    return "deploy" if row.found and answers else "by hand"


def _reread_way(row: DriftRow) -> How:
    """Return "deploy" for Lockstep's units, which a deploy rereads; "by hand" for the system's."""
    return "by hand" if row.item in SYSTEM_SERVICES else "deploy"


def _turn_on(row: DriftRow) -> tuple[str, ...]:
    # A masked unit keeps the others from starting.
    names = _DOCKER if row.item in _DOCKER else (row.item,)
    on = 'systemctl unmask "$@" && systemctl enable --now "$@"'
    return ("sh", "-c", on, "sh", *names) if row.found else ()


def _other_path_command(row: DriftRow) -> tuple[str, ...]:
    # Only its package should remove a package's file, so people look at it.
    is_packaged = (row.found or "").startswith(("/usr/lib/", "/lib/"))
    return ("systemctl", "cat", row.item) if is_packaged else ("rm", str(row.found))


def _drop_in_command(row: DriftRow) -> tuple[str, ...]:
    unit, _, path = row.item.partition(" ")
    if unit in SYSTEM_SERVICES:
        # Its author may need it, so people look at it.
        return ("systemctl", "cat", unit)
    if path.startswith(("/etc/systemd/system.control/", "/run/systemd/system.control/")):
        return ("systemctl", "revert", unit)
    return ("sh", "-c", 'rm "$0" && systemctl daemon-reload', path)


#: Settings that a service of the system reads once, when it starts.
_READ_AT_START = {
    "docker.service": ["/etc/docker/daemon.json"],
    "ssh.service": ["/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d"],
}
# Places of drop-ins made by hand; those under /usr/lib come with packages.
_BY_HAND = ("/etc/", "/run/", "/usr/local/")
# A process that a deploy restarts for its file, and one that it leaves alone.
_RESTART_DUE, _LEFT_ALONE = "restart due", "started before"
RESTART_KEY = "restart key"
KINDS = {
    # The deploy writes a missing unit.
    "unit": Kind(
        units.read,
        "error",
        lambda row: "by hand" if row.found else "deploy",
        _unmask,
        scope="nothing",
    ),
    "unit path": Kind(units.read, "error", mend=_other_path_command, scope="nothing"),
    "boot": Kind(units.read, "error", "deploy", scope="nothing"),
    "running": Kind(units.read, "error", "deploy", scope="nothing"),
    "system service": Kind(units.system_services, "error", _service_way, _turn_on, scope="nothing"),
    RESTART_KEY: Kind(units.read, "error", "deploy", scope="nothing"),
    "unread unit": Kind(units.read, how=_reread_way, mend="systemctl daemon-reload", scope="odd"),
    "drop-in": Kind(units.read, "error", mend=_drop_in_command, scope="odd"),
    "older process": Kind(
        units.read,
        how=lambda row: "deploy" if row.found == _RESTART_DUE else "by hand",
        mend="systemctl restart {first}",
        scope="odd",
    ),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """Return the questions to the readers. A deploy asks about more units, whose state it uses."""
    services = system_units(desired_state.plan.settings)
    names = [*desired_state.unit_files, *services]
    programs = {name: desired_state.unit_programs.get(name, []) for name in names}
    secrets = {name: [WEBUI_SECRETS] for name in desired_state.webui_units}
    return {
        units.read: {
            "programs": programs,
            "reads": {**_READ_AT_START, **secrets},
            "system": services,
        },
        units.system_services: {"services": services},
    }


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """Yield the wanted state of the deploy's units, of the system's services, and of Docker."""
    off_units, running = units_off_at_boot(desired_state), running_units(desired_state)
    for name in desired_state.unit_files:
        restart_key = wanted_restart_key(desired_state.all_files, name)
        at_boot, runs = name not in off_units, name in running
        yield from unit_expectations(name, restart_key, at_boot=at_boot, runs=runs)
    yield from _service_expectations(system_units(desired_state.plan.settings))
    docker = docker_restart_key(desired_state.plan.settings)
    yield Expectation(RESTART_KEY, "docker.service", docker, if_there=True)


def units_off_at_boot(desired_state: DesiredState) -> list[str]:
    """Return the deploy's units that have no place in the boot, as no model has."""
    return [
        name
        for file in desired_state.all_files
        if (name := PurePosixPath(file.path).name) in desired_state.unit_files
        and "\n[Install]\n" not in file.text
    ]


def running_units(desired_state: DesiredState) -> list[str]:
    """Return the deploy's units that must run: those with a place in the boot, which no model has.

    One of them does nothing before the next boot.
    """
    idle_units = (*units_off_at_boot(desired_state), models_by_boot.UNIT)
    return [name for name in desired_state.unit_files if name not in idle_units]


def unit_expectations(
    name: str, restart_key: str, *, at_boot: bool, runs: bool
) -> Iterator[Expectation]:
    """Yield what a unit of the deploy shall be: read from its file, and with its restart key."""
    yield Expectation("unit", name, "loaded")
    yield Expectation("unit path", name, f"{SYSTEMD}/{name}", if_there=True)
    yield Expectation("boot", name, "yes" if at_boot else "no", if_there=True)
    if runs:
        yield Expectation("running", name, "yes")
    yield Expectation(RESTART_KEY, name, restart_key, if_there=True)


def _service_expectations(names: Sequence[str]) -> Iterator[Expectation]:
    for name in names:
        yield Expectation("system service", name, units.ON)


def unit_facts(
    states: Mapping[str, Mapping[str, Any]], paths: Container[str] = ()
) -> dict[str, dict[str, str]]:
    """Return the facts in the answer of the reader `units` (unit → state); no `paths` are foreign.

    Pure.
    """
    facts: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    for name, state in states.items():
        if state.get("LoadState", "not-found") == "not-found":
            continue
        facts["unit"][name] = state["LoadState"]
        # A link below /run is gone after a boot ("enabled-runtime").
        is_linked = state.get("UnitFileState") == "enabled" or state.get("links")
        facts["boot"][name] = "yes" if is_linked else "no"
        if path := state.get("FragmentPath"):
            facts["unit path"][name] = path
        # Between two tries nothing runs; the next try reads the new unit.
        is_waiting = state.get("SubState") == "auto-restart"
        runs = state["ActiveState"] in _RUNNING and not is_waiting
        waits = "auto-restart" if is_waiting else state["ActiveState"]
        facts["running"][name] = "yes" if runs else waits
        if runs:
            facts[RESTART_KEY][name] = state["restart_key"]
        if state.get("NeedDaemonReload") == "yes":
            facts["unread unit"][name] = "changed"
        for path in state.get("DropInPaths", "").split():
            if path.startswith(_BY_HAND) and path not in paths:
                facts["drop-in"][f"{name} {path}"] = "present"
        for path, is_restarted in state.get("newer", {}).items():
            text = _RESTART_DUE if is_restarted else _LEFT_ALONE
            facts["older process"][f"{name} {path}"] = text
    return facts


def is_outdated(state: Mapping[str, Any]) -> bool:
    """Tell whether a deploy restarts a unit because it is older than a file that it has read."""
    return any(state.get("newer", {}).values())


def kinds_to_mend(
    name: str, state: Mapping[str, Any], restart_key: str, *, at_boot: bool, runs: bool
) -> set[str]:
    """Return the kinds in which a deploy changes a unit of its own.

    Args:
        name: The unit.
        state: Its state, as the reader `units` gives it.
        restart_key: The key that it shall run with, "" for none.
        at_boot: Whether it shall start at boot.
        runs: Whether it shall run now.
    """
    facts = unit_facts({name: state})
    rows = rows_to_mend(
        KINDS, unit_expectations(name, restart_key, at_boot=at_boot, runs=runs), facts
    )
    kinds = {kind for kind, _ in rows} | ({"unread unit"} if facts["unread unit"] else set())
    # A unit that systemd does not know has no place in the boot either.
    return kinds | ({"boot"} if at_boot and not facts["unit"] else set())


def services_to_turn_on(names: Sequence[str], facts: Mapping[str, Any]) -> dict[str, str]:
    """Return services of the system that a deploy turns on → what they lack."""
    rows = [row for _, row in unmet_rows(_service_expectations(names), facts)]
    return {row.item: row.found for row in rows if row.found}
