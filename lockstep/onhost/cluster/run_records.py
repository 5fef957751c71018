"""The record of this member: the last run of each cluster, and its part in a switch.

It is in /run, and on disk as well, because a boot must not forget why a run ended; a full disk
costs no more than that. systemd alone says whether a rank is up. Only the agent writes the record,
and a restarted agent undoes its part.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.onhost.core import clock, config, errors, event_lines, layout, topology
from lockstep.onhost.records import json_records

#: The user under whose name a cluster is started again after a fault.
WATCH = "the cluster watch"
HOT, ENDED_BY_FAULT, RECOVERING, DOWN, SWITCHED_OFF = (
    "hot",
    "ended",
    "recovering",
    "down",
    "stopped",
)
WORDS = {
    HOT: "hot",
    ENDED_BY_FAULT: "ended, rank 0 decides what follows",
    RECOVERING: "ended, to be started again",
    DOWN: "left down",
    SWITCHED_OFF: "switched off",
}
# The start gate of a unit asks within this time whether its rank may start.
_ADMITTED_S = 60.0
_writing = threading.Lock()


@dataclass(frozen=True)
class ClusterRun:
    """One run of a cluster's model.

    Attributes:
        cluster: Name of the cluster.
        model: The model that runs.
        run: The id of this run.
        state: `hot`; `ended` by a fault; `recovering` (rank 0 starts it again); `down`, given up;
            `stopped` by somebody.
        since: Time when it became hot, Unix time.
        reason: Reason of its end, or of its last end.
        end_time: Time of that end, Unix time.
        ended_at: The same in seconds since boot.
        starts: Times of restarts after a fault, seconds since boot.
        sign_time: Time of rank 0's last sign of life, Unix time: its last message; on rank 0 its
            last token.
        members: Member → its last state; on rank 0.
    """

    cluster: str
    model: str
    run: str
    state: str = HOT
    since: float = field(default_factory=time.time)
    reason: str = ""
    end_time: float | None = None
    ended_at: float = 0.0
    starts: tuple[float, ...] = ()
    sign_time: float | None = None
    members: dict[str, str] = field(default_factory=dict)

    def as_ended_run(self, state: str, reason: str) -> ClusterRun:
        """Return the same run, ended now."""
        return replace(self, state=state, reason=reason, end_time=time.time(), ended_at=clock.now())


@dataclass(frozen=True)
class SwitchPart:
    """A host's part in one switch: id, user, host of the request, previous hot model of its own.

    The rank of the model `admitted_model` may start until `admitted_until`, in seconds since boot.
    """

    switch: str
    user: str
    asked_on: str
    wanted_name: str
    previous: str | None
    is_dropped: bool = False
    admitted_model: str | None = None
    admitted_until: float = 0.0

    def with_admitted(self, model: str | None) -> SwitchPart:
        """Return the same part, in which the rank of a model, or none, may start now."""
        return replace(self, admitted_model=model, admitted_until=clock.now() + _ADMITTED_S)

    def is_admitted(self, model: str) -> bool:
        """Tell whether the rank of a model may start now."""
        return self.admitted_model == model and clock.now() < self.admitted_until


@dataclass(frozen=True)
class MemberRecord:
    """The record: the last run of each cluster by its name, and the part in a switch."""

    runs: dict[str, ClusterRun]
    part: SwitchPart | None = None


def recorded_runs(paths: layout.Paths) -> dict[str, ClusterRun]:
    """Return the last run of each cluster; {} if nothing is known."""
    return _load_member_record(paths.clusters).runs


def recorded_switch_part(paths: layout.Paths) -> SwitchPart | None:
    """Return the part of this host, perhaps of an earlier agent; None without one."""
    return _load_member_record(paths.clusters).part


def _load_member_record(path: Path) -> MemberRecord:
    record = json_records.load(MemberRecord, path)
    # Until 2026-11-29 the document was the runs. A cluster that is hot must not become an orphan.
    return record or MemberRecord(json_records.load(dict[str, ClusterRun], path) or {})


def save(paths: layout.Paths, cluster_run: ClusterRun) -> None:
    """Save one cluster's state, in one step; everybody may read it."""
    with _writing:
        record = _load_member_record(paths.clusters)
        _write(paths, replace(record, runs={**record.runs, cluster_run.cluster: cluster_run}))


def save_switch_part(paths: layout.Paths, part: SwitchPart | None) -> None:
    """Save this host's part in a switch, or that it has none."""
    with _writing:
        _write(paths, replace(_load_member_record(paths.clusters), part=part), on_disk=False)


def end_runs_before_boot(paths: layout.Paths, host: config.HostConfig) -> None:
    """Forget clusters that the host has left, and runs that a boot has ended, as an agent begins.

    Runs from before a boot are over, and ended ones stay down with their reasons.
    """
    boot_reason = f"{host.name} was rebooted or lost its power"
    with _writing:
        is_rebooted = not paths.clusters.exists()
        cluster_runs = (
            _load_member_record(paths.clusters_on_disk).runs
            if is_rebooted
            else recorded_runs(paths)
        )
        own_runs = {
            name: cluster_run for name, cluster_run in cluster_runs.items() if name in host.clusters
        }
        for name, cluster_run in own_runs.items() if is_rebooted else ():
            # The restarts were counted in seconds since an earlier boot.
            old = replace(cluster_run, starts=(), members={})
            if cluster_run.state == HOT:
                old = old.as_ended_run(DOWN, boot_reason)
            elif cluster_run.state in (ENDED_BY_FAULT, RECOVERING):
                old = replace(old, state=DOWN, reason=f"{cluster_run.reason}; then {boot_reason}")
            own_runs[name] = old
        _write(paths, MemberRecord(own_runs, recorded_switch_part(paths)))
        # Its name until 2026-11-29.
        paths.clusters_on_disk.with_name("groups.json").unlink(missing_ok=True)


def record_finished_switch(
    paths: layout.Paths, host: config.HostConfig, part: SwitchPart, hot: str | None
) -> None:
    """Record that a switch is done: `hot` is hot here, and other runs of clusters are over."""
    cluster = host.cluster_of_model(hot) if hot else None
    cluster_runs = recorded_runs(paths)
    for cluster_run in cluster_runs.values():
        # A restart after a fault is no decision against the cluster.
        is_decision = part.user != WATCH and cluster_run.state != SWITCHED_OFF
        if is_decision and (cluster is None or cluster_run.cluster != cluster.name):
            reason = f"{part.user} switched to {part.wanted_name} on {part.asked_on}"
            save(paths, cluster_run.as_ended_run(SWITCHED_OFF, reason))
    if cluster is None or not hot:
        return
    new = ClusterRun(cluster.name, hot, part.switch, sign_time=time.time())
    earlier_run = cluster_runs.get(cluster.name)
    if earlier_run is not None and part.user == WATCH:
        new = replace(
            new,
            starts=earlier_run.starts,
            reason=earlier_run.reason,
            end_time=earlier_run.end_time,
        )
    save(paths, new)


def mark_for_restart(
    paths: layout.Paths, cluster: topology.Cluster, part: SwitchPart, reason: str
) -> None:
    """Record that rank 0 must restart a cluster that was hot before an undone switch."""
    cluster_run = recorded_runs(paths).get(cluster.name)
    if cluster_run is None:
        cluster_run = ClusterRun(cluster.name, str(part.previous), part.switch)
    state = ENDED_BY_FAULT if cluster.rank else RECOVERING
    why = f"the switch to {part.wanted_name} was cut off: {reason}"
    save(paths, cluster_run.as_ended_run(state, why))


def switch_off_reason(cluster: str, run: str, states: Mapping[str, Any]) -> str:
    """Name the member that says that somebody switched this run off, with the reason; "" if none.

    A member that was rebooted, or left it down, is no decision. `states` are members' answers.
    """
    for name, state in states.items():
        member_run = state["groups"].get(cluster, {})
        if (member_run.get("state"), member_run.get("run")) == (SWITCHED_OFF, run):
            return f"{name}: {member_run['reason']}"
    return ""


def change_run_fields(paths: layout.Paths, cluster_run: ClusterRun, **values: Any) -> None:
    """Change fields of a run that still is in this state; leave any other as it is."""
    with _writing:
        record = _load_member_record(paths.clusters)
        current = record.runs.get(cluster_run.cluster)
        if current is not None and (current.run, current.state) == (
            cluster_run.run,
            cluster_run.state,
        ):
            changed_run = replace(current, **values)
            runs = {**record.runs, cluster_run.cluster: changed_run}
            _write(paths, replace(record, runs=runs), on_disk=False)


def _write(paths: layout.Paths, record: MemberRecord, on_disk: bool = True) -> None:
    # Disk first: a boot must remember everything that anybody can have seen.
    if on_disk:
        try:
            json_records.save(paths.clusters_on_disk, record, mode=0o600)
        except OSError as error:
            reason = f"{errors.why(error)}: a boot will forget how it stands"
            event_lines.say(f"{paths.clusters_on_disk}: {reason}")
    json_records.save(paths.clusters, record)
