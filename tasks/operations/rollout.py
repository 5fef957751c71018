"""Deploys to hosts with a hot model: one after another, restored on failure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pyinfra import host, state
from pyinfra.api import StringCommand, operation

from lockstep.deploy.turns import Part
from lockstep.files.managed_file import ManagedFile
from lockstep.files.tree import changes
from lockstep.inventory.settings import Floor
from lockstep.system.folders import generation
from lockstep.tasks import remote, report, run, turns
from lockstep.tasks.facts import host as facts
from lockstep.tasks.operations import cluster_rollout, services
from lockstep.tasks.operations.files import write_tree
from lockstep.tasks.remote import Commands
from lockstep.units.agent_unit import key_path

# A return that was cut off is ended by systemd; it includes a start, which its own unit bounds.
_JOB = (
    *("--property", "OOMScoreAdjust=-900", "--property", "TimeoutStopSec=7200"),
    *("--property", f"ExecStopPost={' '.join(cluster_rollout.ROLLOUT)} mend"),
)
# What the deploy writes from the services on; all before that is added, and nothing uses it yet.
_RETURNING = ("services", "gateway", "switch", "webui", "monitoring")
_settled: set[str] = set()


@dataclass(frozen=True)
class Change:
    """What this deploy would change of one host's model units.

    Attributes:
        files: Units, launchers and what they read, as they are to be.
        left: Paths of an earlier deploy that nothing asks for any more.
        stale: Units that run with an older generation, to be restarted.
        ranks: Those that run so on several hosts at once, to be restarted on all of them.
        ending: Units that run and are among `left`.
        differs: Whether any file is another one.
        activate: Whether another engine environment is to become the current one.
        first: Whether there is no current one yet: a unit is refused whose program is not there.
        hot: Model units that run now, for people.
    """

    files: Sequence[ManagedFile]
    left: Sequence[str]
    stale: Sequence[str]
    ranks: Sequence[str]
    ending: Sequence[str]
    differs: bool
    activate: bool
    first: bool
    hot: Sequence[str]

    @property
    def part(self) -> Part:
        """What a turn is taken for."""
        if self.stale or self.ending:
            return "restart"
        return "change" if self.differs or self.activate or self.left else "nothing"


@operation()
def kept() -> Commands:
    """Keep every file that this deploy may change from here on, for a return of all hosts."""
    this = run.current()
    found, left, engines = facts.ask("files"), services.left_over(), facts.ask("environments")
    if found is None or left is None or engines is None:
        return
    files = [file for file in this.all_files if file.stage in _RETURNING]
    spec = this.engine_spec
    activate = spec is not None and engines["current"] != spec["id"]
    if not activate and not left and not changes(files, (), (), found):
        host.noop("nothing is to be changed")
        return
    yield _begin([file.path for file in files], left, whole=True)


@operation()
def host_by_host(units: Sequence[str], together: Sequence[str] = ()) -> Commands:
    """Change what a hot model runs on: in inventory order, each host after its forerunner serves.

    A host that nothing hot would notice is left to the operations that follow, on all hosts at
    once. Where a host fails, it returns to what it had, and the hosts after it stay as they are.

    Args:
        units: Model units of this host.
        together: Those of the units that run on several hosts at once: no host's turn is theirs.
    """
    if not state.is_executing:
        change = _change(units, together)
        if change:
            # First of all: pyinfra looks no further than the first command.
            _name_restarts(change)
            yield from _ranks_down(change)
        if change and change.part == "restart":
            yield from _commands(change)
        else:
            host.noop("no hot model is restarted")
        return
    with turns.of_operation().of(host.name) as take:
        change = _change(units, together)
        if change is None:
            return
        hot = ", ".join(PurePosixPath(unit).stem for unit in change.hot)
        if turns.keep_hot() and (change.part == "restart" or change.ranks):
            report.of(host.name).held = f"{hot} runs on"
            yield from remote.refuse(
                "held back, because it would be interrupted; nothing was changed"
            )
            return
        blocked = take(change.part)
        if blocked:
            held = f"{hot} runs on" if hot else "no model runs, as before"
            report.of(host.name).held = held
            yield from remote.refuse(f"held back, because {blocked} failed; nothing was changed")
        yield from _ranks_down(change)
        if change.part == "restart":
            yield from _commands(change)
            return
        if change.part == "nothing":
            _settled.add(host.name)
        host.noop("no hot model is restarted")


def interrupted(units: Sequence[str], together: Sequence[str]) -> tuple[list[str], list[str]]:
    """Units that this run will restart on the current host, and those that it will only stop.

    Among the latter are such as serve no model.
    """
    change = _change(units, together)
    return ([*change.stale, *change.ranks], list(change.ending)) if change else ([], [])


def pending() -> bool:
    """Whether the host being executed may have anything left to change of its model units."""
    return host.name not in _settled


def _change(units: Sequence[str], together: Sequence[str]) -> Change | None:
    this = run.current()
    engines = facts.ask("environments")
    left = services.left_over()
    if engines is None or left is None:
        return None
    # Where a door is before an engine, clients ask the gateway, and so does the judgement.
    files = [*this.files("services"), *this.files("gateway")]
    gone = services.unit_names(left)
    states = services.states_of(gone)
    found = facts.ask("files")
    if states is None or found is None:
        return None
    spec = this.engine_spec
    stale = [
        unit
        for unit in units
        if services.due(states.get(unit, {}), generation(files, unit)) == "restart"
    ]
    return Change(
        files=files,
        left=left,
        stale=[unit for unit in stale if unit not in together],
        ranks=[unit for unit in stale if unit in together],
        ending=[unit for unit in gone if services.runs(states.get(unit, {}))],
        differs=bool(changes(files, (), (), found)),
        activate=spec is not None and engines["current"] != spec["id"],
        first=engines["current"] is None,
        hot=[unit for unit in (*units, *gone) if services.runs(states.get(unit, {}))],
    )


def _name_restarts(change: Change) -> None:
    """Have the end of a run that only looks name what would be restarted."""
    if change.part == "restart":
        report.to_restart(host.name, [*change.stale, *change.ending])
    for target in run.current().plan.targets:
        if target.group is not None and target.unit in change.ranks:
            members = [member.name for member in target.group.members]
            report.to_restart_together(host.name, target.name, members)


def _ranks_down(change: Change) -> Commands:
    """Keep what there is of a host whose cluster's hot model changes, and take that down."""
    if not change.ranks and (change.part == "nothing" or not cluster_rollout.owed()):
        return
    yield _kept(change, cluster_rollout.ROLLOUT_ID)
    yield from cluster_rollout.taken_down(change.ranks)


def _floors() -> list[Floor]:
    return [target.data.floor for target in run.current().plan.targets if target.data.floor]


def _baseline() -> Commands:
    """The last moment at which the engine that is to be replaced can say how fast it was."""
    if any(floor.share is not None for floor in _floors()):
        yield remote.words([*cluster_rollout.FLOOR, "--baseline"])


def _kept(change: Change, rollout: str = "") -> StringCommand:
    return _begin([file.path for file in change.files], change.left, rollout=rollout)


def _begin(files: Sequence[str], left: Sequence[str], **more: object) -> StringCommand:
    spec = run.current().engine_spec
    # Nobody returns to the key of a cluster that is no more; the next deploy makes another one.
    left = [path for path in left if not PurePosixPath(path).match(key_path("*"))]
    kept = {"current": spec["current"] if spec else None, "paths": [*files, *left], **more}
    return remote.words([*cluster_rollout.ROLLOUT, "begin"], _stdin=[json.dumps(kept)])


def _commands(change: Change) -> Commands:
    """Keep what there is, replace it, restart; `rollout` returns where that fails.

    Where group data has a floor, what is hot must stay as fast as that, or it has failed too.
    """
    this = run.current()
    yield from _baseline()
    host.log(f"one host at a time: {', '.join((*change.stale, *change.ending))}")
    yield _kept(change)
    user = this.plan.settings.service_user
    if change.activate and change.first:
        yield remote.build("activate", user)
    yield from write_tree(change.files)
    if change.activate and not change.first:
        yield remote.build("activate", user)
    yield remote.words(["systemctl", "daemon-reload"])
    gate = ["--gate", "--", *cluster_rollout.FLOOR] if _floors() else []
    yield remote.job("rollout", [*cluster_rollout.ROLLOUT, "go", *gate], *_JOB)
    if change.left:
        yield from services.forget(change.left)
