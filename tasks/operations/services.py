"""Units on the host: written after verification, disabled at boot, restarted when outdated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pyinfra import host, state
from pyinfra.api import operation

from lockstep.files.managed_file import AGENT_UNIT, API_KEY, ManagedFile, Stage
from lockstep.monitoring import stack
from lockstep.onhost.facts.units import ON
from lockstep.system.folders import generation
from lockstep.tasks import remote, report, run, turns
from lockstep.tasks.facts import host as facts
from lockstep.tasks.operations.files import write_tree
from lockstep.tasks.remote import Commands
from lockstep.units import backup_twin
from lockstep.units.agent_unit import RECORDS
from lockstep.units.docker_run import DOCKER as DOCKER_PROGRAM
from lockstep.units.docker_run import LABEL

DOCKER = "docker.service"
_UNITS = (".service", ".socket", ".timer")
_INTRUDERS = "records.intruders"
# Docker may hang; its own unit sets its start no bound (TimeoutStartSec=0: docker.io 26.1.5).
_BOUND = ("timeout", "--verbose", "300")


@operation()
def written(stage: Stage) -> Commands:
    """Write the files of one stage; what `systemd-analyze verify` refuses replaces nothing."""
    yield from write_tree(run.current().files(stage))


@operation()
def taken_over(containers: Sequence[str]) -> Commands:
    """Remove containers of somebody else's that have a name of ours, as `adopt` asks."""
    if not containers:
        host.noop("no container is taken over")
        return
    yield remote.words([*_BOUND, DOCKER_PROGRAM, "rm", "--force", *containers])


@operation()
def off_at_boot(units: Sequence[str]) -> Commands:
    """Remove boot links of model units, and say so: nothing is hot at boot unless asked."""
    states = facts.ask("units") or {}
    linked = {name: states[name]["links"] for name in units if states.get(name, {}).get("links")}
    if not linked:
        host.noop("no model unit starts at boot")
        return
    for name, links in linked.items():
        host.log(f"{name} had a boot link ({', '.join(links)}): removed")
    yield remote.words(["systemctl", "--no-reload", "disable", *linked])
    for links in linked.values():
        yield remote.words(["rm", "-f", *links])
    yield remote.words(["systemctl", "daemon-reload"])


@operation()
def reread(
    units: Sequence[str], generations: Mapping[str, str] | None = None, engines: Sequence[str] = ()
) -> Commands:
    """Restart system services that run since before one of their drop-ins was written or removed.

    A restart of Docker ends containers: hosts whose model is in one take turns, and the next begins
    when the model of the one before is back. Where it would end others' containers, it fails.

    Args:
        units: Units of the system that a file of ours changes ("ssh.service").
        generations: Unit → LOCKSTEP_GENERATION that it must run with, "" for none: sees a drop-in
            that was removed, and a change in a file that the drop-in names.
        engines: Model units whose engine is in a container.
    """
    if not state.is_executing:
        old, hot = outdated(units, generations or {}, engines)
        report.to_restart(host.name, hot)
        yield from _reread(old, hot)
        return
    with turns.of_operation().of(host.name) as take:
        old, hot = outdated(units, generations or {}, engines)
        if turns.keep_hot() and hot:
            report.of(host.name).held = f"{', '.join(hot)} runs on"
            yield from remote.refuse(f"held back, because a restart of {DOCKER} would interrupt it")
            return
        blocked = take("restart" if hot else "nothing")
        if blocked:
            report.of(host.name).held = f"{', '.join(hot)} runs on"
            yield from remote.refuse(f"held back, because {blocked} failed")
        theirs = _ended_with_docker() if DOCKER in old else {}
        if theirs:
            yield from remote.refuse(
                f"{DOCKER} is not restarted: {theirs.popitem()[1]}. Remedy: stop these containers, "
                f'or let the inventory end them: "adopt": ("unit {DOCKER}",)'
            )
            return
        yield from _reread(old, hot)


def _ended_with_docker() -> dict[str, str]:
    asked = {"docker": {"label": LABEL, "generation": None}, "adopt": remote.adopted()}
    found: dict[str, str] = facts.ask_anew({_INTRUDERS: asked}).get(_INTRUDERS) or {}
    return found


def outdated(
    units: Sequence[str], wanted: Mapping[str, str], engines: Sequence[str]
) -> tuple[list[str], list[str]]:
    """System services to restart, and the model units that a restart of Docker would end."""
    states = facts.ask("units") or {}
    old = [
        unit
        for unit in units
        if states.get(unit, {}).get("outdated")
        or (unit in wanted and states.get(unit, {}).get("generation", "") != wanted[unit])
    ]
    return old, [unit for unit in engines if DOCKER in old and runs(states.get(unit, {}))]


def _reread(old: Sequence[str], hot: Sequence[str]) -> Commands:
    if not old:
        host.noop("system services run with our settings")
        return
    yield remote.words(["systemctl", "daemon-reload"])
    # StartLimitBurst= of docker.service is three a minute, starts that were asked for included.
    yield remote.words(["systemctl", "reset-failed", *old])
    yield remote.words([*_BOUND, "systemctl", "restart", *old])
    if hot:
        # Docker's restart restarts it too; this waits until it has generated a token.
        yield remote.job("docker-restarted", ["systemctl", "start", *hot])


@operation()
def turn_on(names: Sequence[str]) -> Commands:
    """Enable and start services of the system that Lockstep needs and somebody switched off.

    One that is not there stays away.
    """
    found = facts.ask("units.system_services")
    if found is None:
        return
    off = [name for name in names if found.get(name, ON) != ON]
    if not off:
        host.noop("services of the system are on, and come with a boot")
        return
    for name in off:
        host.log(f"{name} is {found[name]}: turned on")
    yield remote.words(["systemctl", "unmask", "--quiet", *off])
    yield remote.words(["systemctl", "enable", "--quiet", "--now", *off])


@operation()
def forgotten() -> Commands:
    """Stop and remove what an earlier deploy wrote and no target asks for any more."""
    left = left_over()
    if left:
        yield from forget(left)
    elif left is not None:
        host.noop("nothing of an earlier deploy is left over")


def left_over() -> list[str] | None:
    """Units and scripts that say an earlier deploy wrote them and this one does not ask for.

    Modules of an earlier Lockstep are among them, keys of clusters that this host is a member of no
    more, and the API key where no target is open any more.
    """
    found = facts.ask("files.marked")
    this = run.current()
    keys = {path for key in this.shared_keys for path in key.modes(this.plan.name)}
    keys |= {each.path for each in this.given_secrets}
    keys |= {API_KEY} if this.key_users else set()
    return None if found is None else sorted(set(found).difference(this.paths, keys))


def states_of(more: Sequence[str]) -> dict[str, Any] | None:
    """State of each unit that this deploy knows, and of `more`, units of an earlier one."""
    known: dict[str, Any] | None = facts.ask("units")
    if known is None or not more:
        return known
    others = facts.ask_anew({"units": {name: [] for name in more}}).get("units")
    return None if others is None else {**known, **others}


def forget(left: Sequence[str]) -> Commands:
    """The commands that stop and remove what is left over."""
    for path in left:
        host.log(f"{path} is of an earlier deploy: removed")
    units = unit_names(left)
    if units:
        yield remote.words(["systemctl", "disable", "--now", "--quiet", *units])
    keeping = [unit for unit in stack.KEEPING if unit in units]
    if keeping:
        yield remote.words(["systemctl", "clean", "--what=state", *keeping])
    if backup_twin.UNIT in units:
        yield remote.words(backup_twin.CLOSED)
    records = RECORDS if AGENT_UNIT in units else ()
    yield remote.write({"remove": [*left, *records]})
    yield remote.words(["systemctl", "daemon-reload"])


def unit_names(paths: Sequence[str]) -> list[str]:
    """Names of the units among these paths; systemd stops none of a template's own."""
    names = [PurePosixPath(path).name for path in paths if path.endswith(_UNITS)]
    return [name for name in names if "@." not in name]


@operation()
def in_force(
    units: Sequence[str],
    stage: Stage,
    enabled: Sequence[str] = (),
    next_boot: Sequence[str] = (),
    together: Sequence[str] = (),
    settled: Sequence[str] = (),
    program: Sequence[str] = ("systemctl",),
) -> Commands:
    """Reload systemd where it holds older files, and restart what runs with an older generation.

    Both are read from the units themselves, so a restart that an earlier, cut-off run owed is not
    forgotten. A unit that is not running is left alone, unless it is to be enabled.

    Args:
        units: Units to look at.
        stage: Stage of the managed files that define them.
        enabled: Those that start at boot and run now.
        next_boot: Those that start at boot and are neither started nor restarted now.
        together: Those that run on several hosts at once: never restarted on one of them.
        settled: Jobs of which an earlier failure is over when the host has come so far.
        program: What starts and restarts them, as `systemctl restart UNIT` does.
    """
    files = run.current().files(stage)
    states = facts.ask("units")
    if states is None:
        return
    changed = False
    found = {unit: states.get(unit, {}) for unit in units}
    if _is_stale(states, files) or any(
        shown.get("LoadState") != "loaded" for shown in found.values()
    ):
        yield remote.words(["systemctl", "daemon-reload"])
        changed = True
    opened: set[str] = set()
    for unit, shown in found.items():
        if unit in (*enabled, *next_boot) and shown.get("UnitFileState") != "enabled":
            yield remote.words(["systemctl", "enable", "--quiet", unit])
            changed = True
        verb = due(shown, generation(files, unit), unit in enabled)
        if verb and unit.endswith(".socket"):
            # systemd opens none while its service runs, and a restart stops that before.
            verb = "restart"
            opened.add(unit)
        if verb == "restart" and f"{PurePosixPath(unit).stem}.socket" in opened - {unit}:
            # It was restarted with its socket.
            verb = None
        if verb and unit not in (*together, *next_boot):
            host.log(f"{verb} {unit}")
            yield remote.job(f"{verb}-{PurePosixPath(unit).stem}", [*program, verb, unit])
            changed = True
    failed = [unit for unit in settled if states.get(unit, {}).get("ActiveState") == "failed"]
    if failed:
        yield remote.words(["systemctl", "reset-failed", *failed])
        changed = True
    if not changed:
        host.noop("running units are up to date")


def _is_stale(states: Mapping[str, Mapping[str, Any]], files: Sequence[ManagedFile]) -> bool:
    """Whether systemd holds an older text of any unit among these files.

    Not only of what is started here: a timer starts its service by itself.
    """
    units = unit_names([file.path for file in files])
    return any(states.get(name, {}).get("NeedDaemonReload") == "yes" for name in units)


def due(state: Mapping[str, Any], wanted: str, must_run: bool = False) -> str | None:
    """What a unit needs, "restart" or "start", to run with the generation that is wanted."""
    active = runs(state)
    # Between two tries nothing runs; the next try reads the new unit.
    active = active and state.get("SubState") != "auto-restart"
    if active and (state.get("generation") != wanted or state.get("outdated")):
        return "restart"
    return "start" if must_run and not active else None


def runs(unit: Mapping[str, Any]) -> bool:
    """Whether a unit, as the reader `units` describes it, is up or starting."""
    return unit.get("ActiveState") in ("active", "activating", "reloading")
