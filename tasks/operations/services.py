"""Units on the host: written after verification, disabled at boot, restarted when outdated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pyinfra import host, state
from pyinfra.api import StringCommand, operation

from lockstep import resources
from lockstep.files.managed_file import AGENT_UNIT, ManagedFile, Stage, command
from lockstep.monitoring import stack
from lockstep.onhost.docker.docker_api import LABEL
from lockstep.system.folders import wanted_restart_key
from lockstep.tasks.operations.files import file_writing_commands
from lockstep.tasks.run import operation_turns, remote_commands, run_report, run_state
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run.remote_commands import Commands
from lockstep.units import backup_peer
from lockstep.units.agent_unit import RECORDS
from lockstep.units.docker_run import DOCKER as DOCKER_PROGRAM

DOCKER = "docker.service"
_UNITS = (".service", ".socket", ".timer")
_OBSTACLES = "deploy_records.foreign_obstacles"
# Docker may hang; its own unit has no bound for its start (TimeoutStartSec=0: docker.io 26.1.5).
_TIMEOUT = ("timeout", "--verbose", "300")


@operation()
def write_stage_files(stage: Stage) -> Commands:
    """Write the files of one stage; files that `systemd-analyze verify` refuses replace nothing."""
    yield from file_writing_commands(run_state.current_desired_state().files(stage))


@operation()
def remove_adopted_containers(containers: Sequence[str]) -> Commands:
    """Remove foreign containers that have a name of ours, as `adopt` asks."""
    if not containers:
        host.noop("no container is taken over")
        return
    yield remote_commands.changing_command(
        [*_TIMEOUT, DOCKER_PROGRAM, "rm", "--force", *containers]
    )


@operation()
def remove_boot_links(units: Sequence[str]) -> Commands:
    """Remove boot links of units that no boot starts, a model's among them; report them."""
    states = facts.reader_answer("units") or {}
    links_by_unit = {
        name: states[name]["links"] for name in units if states.get(name, {}).get("links")
    }
    if not links_by_unit:
        host.noop("no unit starts at boot that is not to")
        return
    for name, links in links_by_unit.items():
        host.log(f"{name} had a boot link ({', '.join(links)}): removed")
    yield remote_commands.changing_command(["systemctl", "--no-reload", "disable", *links_by_unit])
    for links in links_by_unit.values():
        yield remote_commands.changing_command(["rm", "-f", *links])
    yield remote_commands.changing_command(["systemctl", "daemon-reload"])


@operation()
def restart_outdated_system_units(
    units: Sequence[str], restart_keys: Mapping[str, str] | None = None, engines: Sequence[str] = ()
) -> Commands:
    """Restart system services that run since before one of their drop-ins changed.

    A restart of Docker ends containers: hosts with their model in one take turns, and the next
    begins when the model of the one before is back. The operation fails where the restart would end
    foreign containers.

    Args:
        units: Units of the system that a file of ours changes ("ssh.service").
        restart_keys: Unit → LOCKSTEP_RESTART_KEY that it must run with, "" for none: shows a
            drop-in that was removed, and a change in a file that the drop-in names.
        engines: Model units whose engine is in a container.
    """
    if not state.is_executing:
        old, hot = outdated_units(units, restart_keys or {}, engines)
        run_report.record_dry_run_restarts(host.name, hot)
        yield from _system_restart_commands(old, hot)
        return
    with operation_turns.turns_of_operation().of(host.name) as take:
        old, hot = outdated_units(units, restart_keys or {}, engines)
        if operation_turns.is_interruption_forbidden() and hot:
            run_report.outcome_of_host(host.name).hold_reason = f"{', '.join(hot)} runs on"
            yield from remote_commands.fail_host_operation(
                f"held back, because a restart of {DOCKER} would interrupt it"
            )
            return
        failed_host = take("restart" if hot else "nothing")
        if failed_host:
            run_report.outcome_of_host(host.name).hold_reason = f"{', '.join(hot)} runs on"
            yield from remote_commands.fail_host_operation(
                f"held back, because {failed_host} failed"
            )
        foreign_containers = _foreign_containers() if DOCKER in old else {}
        if foreign_containers:
            yield from remote_commands.fail_host_operation(
                f"{DOCKER} is not restarted: {foreign_containers.popitem()[1]}. Remedy: stop "
                "these containers, "
                f'or let the inventory end them: "adopt": ("unit {DOCKER}",)'
            )
            return
        yield from _system_restart_commands(old, hot)


def _foreign_containers() -> dict[str, str]:
    question = {
        "docker": {"label": LABEL, "restart_key": None},
        "adopt": remote_commands.adopted_things(),
    }
    containers: dict[str, str] = (
        facts.refreshed_answers({_OBSTACLES: question}).get(_OBSTACLES) or {}
    )
    return containers


def outdated_units(
    units: Sequence[str], restart_keys: Mapping[str, str], engines: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return services of the system to restart, and model units that a Docker restart would end."""
    states = facts.reader_answer("units") or {}
    old = [
        unit
        for unit in units
        if resources.units.is_outdated(states.get(unit, {}))
        or (
            unit in restart_keys
            and resources.units.RESTART_KEY in _kinds_to_mend(unit, states, restart_keys[unit])
        )
    ]
    return old, [unit for unit in engines if DOCKER in old and is_running(states.get(unit, {}))]


def _system_restart_commands(old: Sequence[str], hot: Sequence[str]) -> Commands:
    if not old:
        host.noop("system services run with our settings")
        return
    yield remote_commands.changing_command(["systemctl", "daemon-reload"])
    # docker.service has StartLimitBurst= of three a minute, and requested starts count too.
    yield remote_commands.changing_command(["systemctl", "reset-failed", *old])
    yield remote_commands.changing_command([*_TIMEOUT, "systemctl", "restart", *old])
    if hot:
        # The restart of Docker starts it too; this waits until it has generated a token.
        yield remote_commands.transient_job_command(
            "docker-restarted", ["systemctl", "start", *hot]
        )


@operation()
def turn_on(names: Sequence[str]) -> Commands:
    """Enable and start services of the system that Lockstep needs and that are off.

    A service that does not exist is left out.
    """
    observed_facts = facts.reader_answer("units.system_services")
    if observed_facts is None:
        return
    off = resources.units.services_to_turn_on(names, observed_facts)
    if not off:
        host.noop("services of the system are on, and come with a boot")
        return
    for name, lack in off.items():
        host.log(f"{name} is {lack}: turned on")
    yield remote_commands.changing_command(["systemctl", "unmask", "--quiet", *off])
    yield remote_commands.changing_command(["systemctl", "enable", "--quiet", "--now", *off])


@operation()
def remove_left_over_files() -> Commands:
    """Stop and remove files of an earlier deploy that no model asks for any more."""
    paths = left_over_files()
    if paths:
        yield from removal_commands(paths)
    elif paths is not None:
        host.noop("nothing of an earlier deploy is left over")


def left_over_files() -> list[str] | None:
    """Return units and scripts of an earlier deploy that this deploy does not ask for.

    Modules of an earlier Lockstep are among them, and keys of clusters that this host is no longer
    a member of. The API key is among them where no model is open any more.
    """
    observed_facts = facts.reader_answer("files.leftovers")
    return None if observed_facts is None else list(observed_facts.get("leftover", {}))


def states_with_earlier(more: Sequence[str]) -> dict[str, Any] | None:
    """Return the state of each unit of this deploy, and of `more`, units of an earlier one."""
    states: dict[str, Any] | None = facts.reader_answer("units")
    if states is None or not more:
        return states
    earlier_states = facts.refreshed_answers(
        {"units": {"programs": {name: [] for name in more}}}
    ).get("units")
    return None if earlier_states is None else {**states, **earlier_states}


def removal_commands(paths: Sequence[str]) -> Commands:
    """Return the commands that stop and remove what is left over."""
    for path in paths:
        host.log(f"{path} is of an earlier deploy: removed")
    units = unit_names_in_paths(paths)
    if units:
        # Before they end, because a way back starts those that ran.
        yield journal_note_command(paths)
        yield remote_commands.changing_command(["systemctl", "disable", "--now", "--quiet", *units])
    keeping = [unit for unit in stack.KEEPING if unit in units]
    if keeping:
        yield remote_commands.changing_command(["systemctl", "clean", "--what=state", *keeping])
    if backup_peer.UNIT in units:
        yield remote_commands.changing_command(backup_peer.CLOSED)
    records = RECORDS if AGENT_UNIT in units else ()
    yield remote_commands.write_files_command({"remove": [*paths, *records]})
    yield remote_commands.changing_command(["systemctl", "daemon-reload"])


def journal_note_command(paths: Sequence[str], **more: str) -> StringCommand:
    """Return the command that notes in the host's journal what is at paths that will change."""
    document = {"paths": list(paths), **more}
    return remote_commands.changing_command(
        command("rollout", "note"), _stdin=[json.dumps(document)]
    )


def unit_names_in_paths(paths: Sequence[str]) -> list[str]:
    """Return names of the units among these paths; systemd has no unit of a template's own."""
    names = [PurePosixPath(path).name for path in paths if path.endswith(_UNITS)]
    return [name for name in names if "@." not in name]


@operation()
def restart_outdated(
    units: Sequence[str],
    stage: Stage,
    at_boot: Sequence[str] = (),
    next_boot: Sequence[str] = (),
    together: Sequence[str] = (),
    program: Sequence[str] = ("systemctl",),
) -> Commands:
    """Reload systemd where it holds older files, and restart units that run with an older key.

    Both are read from the units themselves, so a restart that an earlier, cut-off run still owed is
    not forgotten. A stopped unit is left alone, unless it is to be enabled.

    Args:
        units: Units to look at.
        stage: Stage of the managed files that define them.
        at_boot: Units that start at boot and run now.
        next_boot: Units that start at boot and are neither started nor restarted now.
        together: Units that run on several hosts at once: never restarted on only one of them.
        program: Command that starts and restarts them, as `systemctl restart UNIT` does.
    """
    files = run_state.current_desired_state().files(stage)
    states = facts.reader_answer("units")
    if states is None:
        return
    unit_states = {unit: states.get(unit, {}) for unit in units}
    not_enabled = [
        unit
        for unit in units
        if unit in (*at_boot, *next_boot) and "boot" in _kinds_to_mend(unit, states, at_boot=True)
    ]
    has_changed = (
        bool(not_enabled)
        or _has_unread_unit(states, files)
        or any(properties.get("LoadState") != "loaded" for properties in unit_states.values())
    )
    if not_enabled:
        # It reloads systemd itself.
        yield remote_commands.changing_command(["systemctl", "enable", "--quiet", *not_enabled])
    elif has_changed:
        yield remote_commands.changing_command(["systemctl", "daemon-reload"])
    restarted_sockets: set[str] = set()
    for unit, properties in unit_states.items():
        verb = needed_verb(unit, properties, wanted_restart_key(files, unit), unit in at_boot)
        if verb and unit.endswith(".socket"):
            # systemd opens no socket while its service runs, and a restart stops the service
            # before.
            verb = "restart"
            restarted_sockets.add(unit)
        if verb == "restart" and f"{PurePosixPath(unit).stem}.socket" in restarted_sockets - {unit}:
            # The service was restarted with its socket.
            verb = None
        if verb and unit not in (*together, *next_boot):
            host.log(f"{verb} {unit}")
            # systemd refused a socket in two runs of all tests (2026-11-28 and 29). Why is not
            # known: the job's log has what the unit's journal says of it.
            tries = ["--tries", "2"] if unit.endswith(".socket") else []
            yield remote_commands.transient_job_command(
                f"{verb}-{PurePosixPath(unit).stem}", [*program, verb, unit], *tries
            )
            has_changed = True
    if not has_changed:
        host.noop("running units are up to date")


def _has_unread_unit(states: Mapping[str, Mapping[str, Any]], files: Sequence[ManagedFile]) -> bool:
    """Tell whether systemd holds an older text of any unit among these files.

    All units count, not only those started here: a timer starts its service by itself.
    """
    units = unit_names_in_paths([file.path for file in files])
    return not resources.units.unit_facts(states)["unread unit"].keys().isdisjoint(units)


def needed_verb(
    unit: str, state: Mapping[str, Any], restart_key: str, must_run: bool = False
) -> str | None:
    """Return the verb by which a unit gets its wanted restart key: "restart", "start" or None."""
    changed_kinds = resources.units.kinds_to_mend(
        unit, state, restart_key, at_boot=must_run, runs=must_run
    )
    if resources.units.RESTART_KEY in changed_kinds or resources.units.is_outdated(state):
        return "restart"
    return "start" if "running" in changed_kinds else None


def _kinds_to_mend(
    unit: str, states: Mapping[str, Any], restart_key: str = "", at_boot: bool = False
) -> set[str]:
    state = states.get(unit, {})
    return resources.units.kinds_to_mend(unit, state, restart_key, at_boot=at_boot, runs=False)


def is_running(unit: Mapping[str, Any]) -> bool:
    """Tell whether a unit, as the reader `units` describes it, is up or starting."""
    return unit.get("ActiveState") in ("active", "activating", "reloading")
