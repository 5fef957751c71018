"""The records of this member: the last run of each cluster, and its part in a switch.

In /run, and on disk what a boot must not forget: why a group ended. Whether a rank is up is always
asked of systemd. Only the agent writes it, and an agent that is restarted undoes a part.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from lockstep.onhost.core import atomic, clock, config, layout, output, topology

#: Who starts a group again after a fault.
WATCH = "the cluster watch"
HOT, ENDED, RECOVERING, DOWN, STOPPED = "hot", "ended", "recovering", "down", "stopped"
WORDS = {
    HOT: "hot",
    ENDED: "ended, rank 0 decides what follows",
    RECOVERING: "ended, to be started again",
    DOWN: "left down",
    STOPPED: "switched off",
}
# A unit's start gate asks within this time whether its rank may start.
_ADMITTED_S = 60.0
_writing = threading.Lock()


@dataclass(frozen=True)
class Group:
    """One run of a cluster's target.

    Attributes:
        cluster: Name of the cluster.
        target: What it runs.
        run: Tells this run apart from others.
        state: `hot`; `ended` by a fault; `recovering` (rank 0 starts it again); `down`, given up;
            `stopped` by somebody.
        since: When it became hot, Unix time.
        reason: Why it ended, or ended last.
        ended: When that was, Unix time.
        ended_at: The same in seconds since boot.
        starts: When it was started again after a fault, seconds since boot.
        heard: When rank 0 was last heard, Unix time; on rank 0 its last token.
        members: Member → what it said last; on rank 0.
    """

    cluster: str
    target: str
    run: str
    state: str = HOT
    since: float = field(default_factory=time.time)
    reason: str = ""
    ended: float | None = None
    ended_at: float = 0.0
    starts: tuple[float, ...] = ()
    heard: float | None = None
    members: dict[str, str] = field(default_factory=dict)

    def over(self, state: str, reason: str) -> Group:
        """The same run, which is over now."""
        return replace(self, state=state, reason=reason, ended=time.time(), ended_at=clock.now())


@dataclass(frozen=True)
class Part:
    """This host's part in one switch: its id, who asked and where, what was hot here before."""

    switch: str
    user: str
    asked_on: str
    wanted: str
    previous: str | None
    dropped: bool = False


def load(paths: layout.Paths, before_the_boot: bool = False) -> dict[str, Group]:
    """Cluster → group; {} where nothing is known."""
    data = atomic.read_json(paths.groups_kept if before_the_boot else paths.groups)
    try:
        return {
            name: Group(**{**group, "starts": tuple(group["starts"])})
            for name, group in data.items()
        }
    except (TypeError, LookupError, AttributeError):
        return {}


def save(paths: layout.Paths, group: Group) -> None:
    """Keep one group's state, in one step; everybody may read it."""
    with _writing:
        _write(paths, {**load(paths), group.cluster: group})


def resume(paths: layout.Paths, host: config.Host) -> None:
    """As an agent begins: forget clusters that the host has left, and what a boot has ended.

    What ran before a boot is over, and what had ended stays down with its reason.
    """
    booted = f"{host.name} was rebooted or lost its power"
    with _writing:
        rebooted = not paths.groups.exists()
        groups = load(paths, before_the_boot=rebooted)
        known = {name: group for name, group in groups.items() if name in host.clusters}
        for name, group in known.items() if rebooted else ():
            # Starts are counted in seconds since a boot that is past.
            old = replace(group, starts=(), members={})
            if group.state == HOT:
                old = old.over(DOWN, booted)
            elif group.state in (ENDED, RECOVERING):
                old = replace(old, state=DOWN, reason=f"{group.reason}; then {booted}")
            known[name] = old
        if rebooted or known != groups:
            _write(paths, known)


def committed(paths: layout.Paths, host: config.Host, part: Part, hot: str | None) -> None:
    """A switch is done: `hot` is hot here, and whatever else a group ran is not."""
    cluster = host.cluster(hot) if hot else None
    groups = load(paths)
    for group in groups.values():
        # Who starts a group again after a fault has not decided against it.
        decided = part.user != WATCH and group.state != STOPPED
        if decided and (cluster is None or group.cluster != cluster.name):
            reason = f"{part.user} switched to {part.wanted} on {part.asked_on}"
            save(paths, group.over(STOPPED, reason))
    if cluster is None or not hot:
        return
    new = Group(cluster.name, hot, part.switch, heard=time.time())
    before = groups.get(cluster.name)
    if before is not None and part.user == WATCH:
        new = replace(new, starts=before.starts, reason=before.reason, ended=before.ended)
    save(paths, new)


def owed(paths: layout.Paths, cluster: topology.Cluster, part: Part, reason: str) -> None:
    """A group was hot before a switch that is off: rank 0 starts it again when all can."""
    group = load(paths).get(cluster.name)
    if group is None:
        group = Group(cluster.name, str(part.previous), part.switch)
    state = ENDED if cluster.rank else RECOVERING
    why = f"the switch to {part.wanted} was cut off: {reason}"
    save(paths, group.over(state, why))


def switched_off(cluster: str, run: str, states: Mapping[str, Any]) -> str:
    """Which member says that somebody switched this run off, and how; "" where none does.

    That a member was rebooted, or left it down, is no decision. `states` are members' answers.
    """
    for name, state in states.items():
        there = state["groups"].get(cluster, {})
        if (there.get("state"), there.get("run")) == (STOPPED, run):
            return f"{name}: {there['reason']}"
    return ""


def note(paths: layout.Paths, group: Group, **values: Any) -> None:
    """Change fields of a run that still is in this state; one that is not stays as it is."""
    with _writing:
        groups = load(paths)
        current = groups.get(group.cluster)
        if current is not None and (current.run, current.state) == (group.run, group.state):
            groups[group.cluster] = replace(current, **values)
            _write(paths, groups, on_disk=False)


def part_kept(paths: layout.Paths) -> Part | None:
    """The part that an earlier agent kept; None where it owed nothing."""
    try:
        return Part(**atomic.read_json(paths.joined))
    except TypeError:
        return None


def admit(paths: layout.Paths, name: str) -> None:
    """Let the rank of a target start now."""
    until = clock.now() + _ADMITTED_S
    atomic.write_json(paths.admitted, {"target": name, "until": until})


def _write(paths: layout.Paths, groups: Mapping[str, Group], on_disk: bool = True) -> None:
    found = {name: asdict(each) for name, each in groups.items()}
    # First on disk: what anybody can see, a boot remembers.
    if on_disk:
        try:
            atomic.write_json(paths.groups_kept, found, mode=0o600)
        except OSError as error:
            output.say(f"{paths.groups_kept}: {error.strerror}: a boot will forget how it stands")
    atomic.write_json(paths.groups, found)
