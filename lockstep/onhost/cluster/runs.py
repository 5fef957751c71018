"""The records of this member: the last run of each cluster, and its part in a switch.

They are in /run; the reason why a group ended is also on disk, because a boot must not forget it.
systemd alone says whether a rank is up. Only the agent writes the records, and a restarted agent
undoes its part.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from lockstep.onhost.core import atomic, clock, config, layout, output, topology

#: The user under whose name a group is started again after a fault.
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
class RunPart:
    """A host's part in one switch: id, user, host of the request, previous hot model of its own."""

    switch: str
    user: str
    asked_on: str
    wanted_name: str
    previous: str | None
    is_dropped: bool = False


def load(paths: layout.Paths, before_the_boot: bool = False) -> dict[str, ClusterRun]:
    """Return the group of each cluster; {} if nothing is known."""
    data = atomic.read_json(paths.groups_kept if before_the_boot else paths.groups)
    try:
        return {
            name: ClusterRun(**{**group, "starts": tuple(group["starts"])})
            for name, group in data.items()
        }
    except (TypeError, LookupError, AttributeError):
        return {}


def save(paths: layout.Paths, group: ClusterRun) -> None:
    """Save one group's state, in one step; everybody may read it."""
    with _writing:
        _write(paths, {**load(paths), group.cluster: group})


def settle_runs_of_earlier_agent(paths: layout.Paths, host: config.HostConfig) -> None:
    """Forget clusters that the host has left, and runs that a boot has ended, as an agent begins.

    Runs from before a boot are over, and ended ones stay down with their reasons.
    """
    boot_reason = f"{host.name} was rebooted or lost its power"
    with _writing:
        is_rebooted = not paths.groups.exists()
        groups = load(paths, before_the_boot=is_rebooted)
        own_groups = {name: group for name, group in groups.items() if name in host.clusters}
        for name, group in own_groups.items() if is_rebooted else ():
            # The restarts were counted in seconds since an earlier boot.
            old = replace(group, starts=(), members={})
            if group.state == HOT:
                old = old.as_ended_run(DOWN, boot_reason)
            elif group.state in (ENDED_BY_FAULT, RECOVERING):
                old = replace(old, state=DOWN, reason=f"{group.reason}; then {boot_reason}")
            own_groups[name] = old
        if is_rebooted or own_groups != groups:
            _write(paths, own_groups)


def record_commit(
    paths: layout.Paths, host: config.HostConfig, part: RunPart, hot: str | None
) -> None:
    """Record that a switch is done: `hot` is hot here, and other runs of groups are over."""
    cluster = host.cluster(hot) if hot else None
    groups = load(paths)
    for group in groups.values():
        # A restart after a fault is no decision against the group.
        is_decision = part.user != WATCH and group.state != SWITCHED_OFF
        if is_decision and (cluster is None or group.cluster != cluster.name):
            reason = f"{part.user} switched to {part.wanted_name} on {part.asked_on}"
            save(paths, group.as_ended_run(SWITCHED_OFF, reason))
    if cluster is None or not hot:
        return
    new = ClusterRun(cluster.name, hot, part.switch, sign_time=time.time())
    earlier_group = groups.get(cluster.name)
    if earlier_group is not None and part.user == WATCH:
        new = replace(
            new,
            starts=earlier_group.starts,
            reason=earlier_group.reason,
            end_time=earlier_group.end_time,
        )
    save(paths, new)


def mark_for_restart(
    paths: layout.Paths, cluster: topology.Cluster, part: RunPart, reason: str
) -> None:
    """Record that rank 0 must restart a group that was hot before an undone switch."""
    group = load(paths).get(cluster.name)
    if group is None:
        group = ClusterRun(cluster.name, str(part.previous), part.switch)
    state = ENDED_BY_FAULT if cluster.rank else RECOVERING
    why = f"the switch to {part.wanted_name} was cut off: {reason}"
    save(paths, group.as_ended_run(state, why))


def switch_off_decision(cluster: str, run: str, states: Mapping[str, Any]) -> str:
    """Name the member that says that somebody switched this run off, with the reason; "" if none.

    A member that was rebooted, or left it down, is no decision. `states` are members' answers.
    """
    for name, state in states.items():
        member_group = state["groups"].get(cluster, {})
        if (member_group.get("state"), member_group.get("run")) == (SWITCHED_OFF, run):
            return f"{name}: {member_group['reason']}"
    return ""


def change_run_fields(paths: layout.Paths, group: ClusterRun, **values: Any) -> None:
    """Change fields of a run that still is in this state; leave any other as it is."""
    with _writing:
        groups = load(paths)
        current = groups.get(group.cluster)
        if current is not None and (current.run, current.state) == (group.run, group.state):
            groups[group.cluster] = replace(current, **values)
            _write(paths, groups, on_disk=False)


def recorded_part(paths: layout.Paths) -> RunPart | None:
    """Return the part that an earlier agent recorded; None if there is none to undo."""
    try:
        return RunPart(**atomic.read_json(paths.joined_switch))
    except TypeError:
        return None


def admit_rank(paths: layout.Paths, name: str) -> None:
    """Let the rank of a model start now."""
    until = clock.now() + _ADMITTED_S
    atomic.write_json(paths.admitted_model, {"model": name, "until": until})


def _write(paths: layout.Paths, groups: Mapping[str, ClusterRun], on_disk: bool = True) -> None:
    document = {name: asdict(group) for name, group in groups.items()}
    # Disk first: a boot must remember everything that anybody can have seen.
    if on_disk:
        try:
            atomic.write_json(paths.groups_kept, document, mode=0o600)
        except OSError as error:
            output.say(f"{paths.groups_kept}: {error.strerror}: a boot will forget how it stands")
    atomic.write_json(paths.groups, document)
