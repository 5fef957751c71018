"""Rank 0 starts a group again that a fault ended: as a whole, and `STARTS` times in `WINDOW_S`."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Any

from lockstep.onhost.cluster import progress, runs, wire_client
from lockstep.onhost.core import errors, layout, output, switch_lock, topology
from lockstep.onhost.switching import switch_job
from lockstep.onhost.systemd import transient, units

STARTS, WINDOW_S = 3, 1800.0
# A Spark that was rebooted is back in two minutes; who pulled its plug may need a while.
RETURN_S = 600.0
NO_HELP = f"{STARTS} starts in {WINDOW_S / 60:.0f} min did not help"

Answer = dict[str, Any]


def lately(group: runs.Group, now: float) -> tuple[float, ...]:
    """Its starts after a fault that still count, in seconds since boot, as `now` is."""
    return tuple(at for at in group.starts if now - at < WINDOW_S)


class Recovery:
    """The starts of one cluster's group; on rank 0."""

    def __init__(self, paths: layout.Paths, caller: wire_client.Caller) -> None:
        self._paths, self._cluster, self._caller = paths, caller.cluster, caller

    def step(self, group: runs.Group) -> None:
        """Start the group again once every member can; give up with the reason otherwise."""
        now = time.monotonic()
        shown = units.show([switch_job.UNIT])[switch_job.UNIT]
        if transient.running(shown) or switch_lock.holder(self._paths.switch_lock):
            return
        if len(lately(group, now)) >= STARTS:
            self._give_up(group, NO_HELP)
            return
        try:
            states = {member.name: self._ready(member) for member in self._cluster.members}
        except errors.Problem as problem:
            if now - max([group.ended_at, *group.starts]) > RETURN_S:
                self._give_up(group, f"after {output.duration(RETURN_S)}: {problem}")
            return
        decided = runs.switched_off(group.cluster, group.run, states)
        if why := self._other(group, states) or decided:
            self._give_up(group, why)
            return
        progress.tell(f"{group.target}: starting it again on all members")
        runs.save(self._paths, replace(group, starts=(*group.starts, now)))
        job = switch_job.job(group.target, runs.WATCH, self._paths)
        with contextlib.suppress(transient.Busy):
            transient.start(job, self._paths, progress.tell, wait=False)

    def _ready(self, member: topology.Member) -> Answer:
        """What a member says; Problem where it cannot take part now."""
        state = self._caller.ask(member, "state", timeout=3.0)
        if state["locked"] or state["busy"]:
            raise errors.Problem(f"{member.name}: {state['locked'] or 'busy'}")
        return state

    def _other(self, group: runs.Group, states: dict[str, Answer]) -> str:
        """Which member has another model hot by now; "" where none has."""
        for name, state in states.items():
            up = [each for each, word in state["states"].items() if word in ("hot", "loading")]
            if up and up != [group.target]:
                return f"{name} has {up[0]} hot now"
        return ""

    def _give_up(self, group: runs.Group, why: str) -> None:
        reason = f"{group.reason}; {why}" if group.reason else why
        runs.save(self._paths, replace(group, state=runs.DOWN, reason=reason))
        progress.tell(f"{group.target} is left down: {reason}")
