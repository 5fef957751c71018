"""Restart by rank 0 of a cluster that a fault ended: whole, and `STARTS` times in `WINDOW_S`."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from lockstep.onhost.cluster import long_work, member_client, run_records
from lockstep.onhost.cluster.member_client import Answer
from lockstep.onhost.core import clock, errors, event_lines, layout, switch_lock, topology
from lockstep.onhost.switching import switch_commands
from lockstep.onhost.systemd import transient_job, units

STARTS, WINDOW_S = 3, 1800.0
# A rebooted Spark is back in two minutes; a person who pulled its plug may need longer.
RETURN_S = 600.0
NO_HELP = f"{STARTS} starts in {WINDOW_S / 60:.0f} min did not help"


def recent_restart_times(cluster_run: run_records.ClusterRun, now: float) -> tuple[float, ...]:
    """Return the restarts after a fault that still count, in seconds since boot, as `now`."""
    return tuple(at for at in cluster_run.starts if now - at < WINDOW_S)


def recover_cluster(
    cluster_run: run_records.ClusterRun,
    paths: layout.Paths,
    caller: member_client.MemberClient,
) -> None:
    """Start the cluster again once every member can; give up with the reason otherwise."""
    now = clock.now()
    unit = units.units_by_name([switch_commands.UNIT])[switch_commands.UNIT]
    if transient_job.is_running(unit) or switch_lock.holder(paths.switch_lock):
        return
    if len(recent_restart_times(cluster_run, now)) >= STARTS:
        _give_up(cluster_run, NO_HELP, paths)
        return
    try:
        states = {
            member.name: _ready_member_state(member, caller) for member in caller.cluster.members
        }
    except errors.Problem as problem:
        if now - max([cluster_run.ended_at, *cluster_run.starts]) > RETURN_S:
            _give_up(cluster_run, f"after {event_lines.duration(RETURN_S)}: {problem}", paths)
        return
    decision = run_records.switch_off_reason(cluster_run.cluster, cluster_run.run, states)
    if why := _other_hot_model_text(cluster_run, states) or decision:
        _give_up(cluster_run, why, paths)
        return
    long_work.print_to_journal(f"{cluster_run.model}: starting it again on all members")
    run_records.save(paths, replace(cluster_run, starts=(*cluster_run.starts, now)))
    job = switch_commands.switch_job_of(cluster_run.model, run_records.WATCH, paths)
    with contextlib.suppress(transient_job.OtherJobRunning):
        transient_job.start_job(job, paths, long_work.print_to_journal, wait=False)


def _ready_member_state(
    member: topology.TopologyMember, caller: member_client.MemberClient
) -> Answer:
    """Return a member's state; raise Problem if it cannot take part now."""
    state = caller.ask(member, "state", timeout=3.0)
    if state["locked"] or state["busy"]:
        raise errors.Problem(f"{member.name}: {state['locked'] or 'busy'}")
    return state


def _other_hot_model_text(cluster_run: run_records.ClusterRun, states: dict[str, Answer]) -> str:
    """Name the member that has another model hot by now; "" if there is none."""
    for name, state in states.items():
        up = [model for model, word in state["states"].items() if word in ("hot", "loading")]
        if up and up != [cluster_run.model]:
            return f"{name} has {up[0]} hot now"
    return ""


def _give_up(cluster_run: run_records.ClusterRun, why: str, paths: layout.Paths) -> None:
    reason = f"{cluster_run.reason}; {why}" if cluster_run.reason else why
    run_records.save(paths, replace(cluster_run, state=run_records.DOWN, reason=reason))
    long_work.print_to_journal(f"{cluster_run.model} is left down: {reason}")
