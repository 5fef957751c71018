"""Deploys to hosts with a hot model: one after another, restored on failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pyinfra import host, state
from pyinfra.api import operation

from lockstep.deploy.host_turns import Part
from lockstep.files.managed_file import ManagedFile
from lockstep.onhost.core.config import Minimum
from lockstep.resources.files import file_changes
from lockstep.system.folders import wanted_restart_key
from lockstep.tasks.operations import cluster_rollout, services
from lockstep.tasks.operations.files import file_writing_commands
from lockstep.tasks.run import operation_turns, remote_commands, run_report, run_state
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run.remote_commands import Commands

# systemd ends a return that was cut off; the return includes a start, which its own unit bounds.
_JOB = (
    *("--property", "OOMScoreAdjust=-900", "--property", "TimeoutStopSec=7200"),
    *("--property", f"ExecStopPost={' '.join(cluster_rollout.ROLLOUT)} mend"),
)
_unchanged_hosts: set[str] = set()


@dataclass(frozen=True)
class UnitChange:
    """The changes of this deploy to one host's model units.

    Attributes:
        files: Wanted units, launchers and the files that they read.
        left_over: Paths of an earlier deploy that nothing asks for any more.
        stale: Units that run with an older restart key, to be restarted.
        ranks: Outdated units that run on several hosts at once, to be restarted on all of them.
        ending: Running units that are among `left_over`.
        differs: Whether any file differs.
        activate: Whether another engine environment is to become the current one.
        first: Whether there is no current one yet: a unit is refused whose program does not exist.
        hot: Model units that run now, for people.
    """

    files: Sequence[ManagedFile]
    left_over: Sequence[str]
    stale: Sequence[str]
    ranks: Sequence[str]
    ending: Sequence[str]
    differs: bool
    activate: bool
    first: bool
    hot: Sequence[str]

    @property
    def turn_kind(self) -> Part:
        """The part of this host's change that needs a turn."""
        if self.stale or self.ending:
            return "restart"
        return "change" if self.differs or self.activate or self.left_over else "nothing"


@operation()
def change_host_by_host(units: Sequence[str], together: Sequence[str] = ()) -> Commands:
    """Change what a hot model runs on, host by host: each waits until the one before serves.

    The order is the inventory's. A host with no change for a hot model is left to the operations
    that follow, on all hosts at once. A host that fails returns to its earlier state, and the hosts
    after it stay as they are.

    Args:
        units: Model units of this host.
        together: Those of the units that run on several hosts at once, which have no host's turn.
    """
    if not state.is_executing:
        change = _pending_unit_change(units, together)
        if change:
            # This comes first: pyinfra looks no further than the first command.
            _name_restarts(change)
            yield from _stop_ranks(change)
        if change and change.turn_kind == "restart":
            yield from _rollout_commands(change)
        else:
            host.noop("no hot model is restarted")
        return
    with operation_turns.turns_of_operation().of(host.name) as take:
        change = _pending_unit_change(units, together)
        if change is None:
            return
        hot = ", ".join(PurePosixPath(unit).stem for unit in change.hot)
        if operation_turns.is_interruption_forbidden() and (
            change.turn_kind == "restart" or change.ranks
        ):
            run_report.outcome_of_host(host.name).hold_reason = f"{hot} runs on"
            yield from remote_commands.fail_host_operation(
                "held back, because it would be interrupted; nothing was changed"
            )
            return
        failed_host = take(change.turn_kind)
        if failed_host:
            reason = f"{hot} runs on" if hot else "no model runs, as before"
            run_report.outcome_of_host(host.name).hold_reason = reason
            yield from remote_commands.fail_host_operation(
                f"held back, because {failed_host} failed; nothing was changed"
            )
        yield from _stop_ranks(change)
        if change.turn_kind == "restart":
            yield from _rollout_commands(change)
            return
        if change.turn_kind == "nothing":
            _unchanged_hosts.add(host.name)
        host.noop("no hot model is restarted")


def pending_restarts_and_stops(
    units: Sequence[str], together: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return units that this run will restart on the current host, and units it will only stop.

    The latter include units that serve no model.
    """
    change = _pending_unit_change(units, together)
    return ([*change.stale, *change.ranks], list(change.ending)) if change else ([], [])


def has_pending_changes() -> bool:
    """Tell whether the current host may have changes left of its model units."""
    return host.name not in _unchanged_hosts


def _pending_unit_change(units: Sequence[str], together: Sequence[str]) -> UnitChange | None:
    desired_state = run_state.current_desired_state()
    engines = facts.reader_answer("environments")
    left_over = services.left_over_files()
    if engines is None or left_over is None:
        return None
    # Clients and the speed check ask the gateway where it is before an engine.
    files = [*desired_state.files("services"), *desired_state.files("gateway")]
    leaving_units = services.unit_names_in_paths(left_over)
    states = services.states_with_earlier(leaving_units)
    present_files = facts.reader_answer("files")
    if states is None or present_files is None:
        return None
    spec = desired_state.engine_spec
    stale = [
        unit
        for unit in units
        if services.needed_verb(unit, states.get(unit, {}), wanted_restart_key(files, unit))
        == "restart"
    ]
    return UnitChange(
        files=files,
        left_over=left_over,
        stale=[unit for unit in stale if unit not in together],
        ranks=[unit for unit in stale if unit in together],
        ending=[unit for unit in leaving_units if services.is_running(states.get(unit, {}))],
        differs=bool(file_changes(files, (), (), present_files)),
        activate=spec is not None and engines["current"] != spec["id"],
        first=engines["current"] is None,
        hot=[
            unit for unit in (*units, *leaving_units) if services.is_running(states.get(unit, {}))
        ],
    )


def _name_restarts(change: UnitChange) -> None:
    """Have the end of a dry run name the units that would be restarted."""
    if change.turn_kind == "restart":
        run_report.record_dry_run_restarts(host.name, [*change.stale, *change.ending])
    for model in run_state.current_desired_state().plan.models:
        if model.group is not None and model.unit in change.ranks:
            members = [member.name for member in model.group.members]
            run_report.record_dry_run_cluster_restart(host.name, model.name, members)


def _stop_ranks(change: UnitChange) -> Commands:
    """Note that a host's cluster changes its hot model, and stop that model."""
    if not change.ranks and (
        change.turn_kind == "nothing" or not cluster_rollout.stopped_clusters()
    ):
        return
    yield services.journal_note_command(change.left_over, rollout=cluster_rollout.ROLLOUT_ID)
    yield from cluster_rollout.stop_cluster(change.ranks)


def _model_minimums() -> list[Minimum]:
    return [
        model.data.minimum
        for model in run_state.current_desired_state().plan.models
        if model.data.minimum
    ]


def _measure_baseline_speed() -> Commands:
    """Measure the speed of the engine that is to be replaced, at the last possible moment."""
    if any(minimum.share is not None for minimum in _model_minimums()):
        yield remote_commands.changing_command([*cluster_rollout.MINIMUM, "--baseline"])


def _rollout_commands(change: UnitChange) -> Commands:
    """Replace the files, and restart; `rollout` returns by the journal on failure.

    Where group data has a minimum, a hot model that is slower has failed too.
    """
    desired_state = run_state.current_desired_state()
    yield from _measure_baseline_speed()
    host.log(f"one host at a time: {', '.join((*change.stale, *change.ending))}")
    user = desired_state.plan.settings.service_user
    if change.activate and change.first:
        yield remote_commands.engine_build_job("activate", user)
    yield from file_writing_commands(change.files)
    if change.activate and not change.first:
        yield remote_commands.engine_build_job("activate", user)
    yield remote_commands.changing_command(["systemctl", "daemon-reload"])
    gate = ["--gate", "--", *cluster_rollout.MINIMUM] if _model_minimums() else []
    yield remote_commands.transient_job_command(
        "rollout", [*cluster_rollout.ROLLOUT, "go", *gate], *_JOB
    )
    if change.left_over:
        yield from services.removal_commands(change.left_over)
