"""Watches over the groups of this host: no half of one stays up.

Rank 0 asks every member every few seconds, and the engine for a token. When one is not what it
should be it ends the whole group, which `recovery` starts again as a whole.
Every other rank stops by itself when rank 0 is not heard for the lease.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from lockstep.onhost.cluster import participant, progress, recovery, runs, wire_client
from lockstep.onhost.cluster.wire_client import Answer
from lockstep.onhost.core import clock, errors, switch_lock
from lockstep.onhost.records import ended
from lockstep.onhost.switching import switch, wedge, wedge_state
from lockstep.onhost.systemd import units


@dataclass
class Seen:
    """What the watch has seen of one run: when it began to, and when each member was heard last."""

    run: str = ""
    began: float = field(default_factory=clock.now)
    heard: dict[str, float] = field(default_factory=dict)
    looked: float = field(default_factory=clock.now)
    looking: threading.Thread | None = None
    counters: wedge_state.Record = field(default_factory=wedge_state.Record)
    no_token: str = ""

    def silent(self, name: str) -> float:
        """Seconds since this member was heard."""
        return clock.now() - self.heard.get(name, self.began)


class Watch:
    """The watch over one cluster. `step` is called about once a second."""

    def __init__(self, member: participant.Member, caller: wire_client.Caller) -> None:
        self._member, self._paths, self._times = member, member.paths, member.times
        self._caller, self._cluster = caller, caller.cluster
        self._seen = Seen()
        self._stepped = 0.0

    def step(self) -> None:
        """Look once in a beat, and act."""
        if clock.now() - self._stepped < self._times.beat:
            return
        self._stepped = clock.now()
        group = self._group()
        if self._member.part is not None:
            # The switch under way looks after its ranks; whoever asked for it is waited for.
            self._seen = Seen()
            return
        self._stop_orphans(group)
        if group is None:
            return
        if group.state == runs.HOT:
            if self._seen.run != group.run:
                self._seen = Seen(group.run)
            self._hot(group)
        elif group.state == runs.RECOVERING and self._cluster.rank == 0:
            recovery.step(group, self._paths, self._caller)
        elif group.state == runs.ENDED:
            self._ask_decision(group)

    def heard(self, body: Answer) -> Answer:
        """Rank 0 asks: what ails this rank, for as long as both are of the same run."""
        group = self._group()
        if self._member.part is not None:
            return {"switching": True}
        if group is None or group.run != body["run"] or group.state != runs.HOT:
            return {"over": (group and group.reason) or "it was started anew"}
        self._seen.heard[self._cluster.first.name] = clock.now()
        runs.note(self._paths, group, heard=time.time(), members=body["members"])
        return {"why": self._ailing(group.target)}

    def end(self, body: Answer) -> Answer:
        """Rank 0 ends the group."""
        group = self._group()
        if group is not None and group.run == body["run"] and group.state == runs.HOT:
            threading.Thread(target=self._end_here, args=(group, body["reason"])).start()
        return {}

    def _group(self) -> runs.Group | None:
        return runs.load(self._paths).get(self._cluster.name)

    def _ask_decision(self, group: runs.Group) -> None:
        """Whether rank 0 left this run down; this rank says so then as well."""
        try:
            state = self._caller.ask(self._cluster.first, "state", timeout=3.0)
        except errors.Problem:
            return
        there = state["groups"].get(group.cluster, {})
        if there.get("run") == group.run and there.get("state") == runs.DOWN:
            runs.note(self._paths, group, state=runs.DOWN, reason=there["reason"])

    def _hot(self, group: runs.Group) -> None:
        rank, first = self._cluster.rank, self._cluster.first.name
        if rank == 0:
            reason = self._fault(group)
            if reason:
                self._end_all(group, reason)
        elif why := self._ailing(group.target):
            self._end_here(group, f"rank {rank} {why}")
        elif (silent := self._seen.silent(first)) > self._times.lease:
            self._end_here(group, f"{first}, rank 0, was not heard for {silent:.0f} s")

    def _fault(self, group: runs.Group) -> str:
        """Why the group may not stay; "" when all is well."""
        me, seen = self._cluster.me.name, self._seen
        if why := self._ailing(group.target):
            return f"rank 0 on {me} {why}"
        if reason := self._beat(group):
            return reason
        if seen.no_token:
            return f"rank 0 on {me} generates nothing: {seen.no_token}"
        idle = seen.looking is None or not seen.looking.is_alive()
        if idle and clock.now() - seen.looked >= self._times.look:
            seen.looked = clock.now()
            seen.looking = threading.Thread(target=self._look, args=(group, seen), daemon=True)
            seen.looking.start()
        return ""

    def _beat(self, group: runs.Group) -> str:
        said = {self._cluster.me.name: "hot"}
        body = {"run": group.run, "members": group.members}
        for name, answer in self._caller.ask_all(self._cluster.others, "beat", body).items():
            if isinstance(answer, errors.Problem):
                silent = self._seen.silent(name)
                said[name] = f"silent for {silent:.0f} s"
                if silent > self._times.lease:
                    return f"{name} was not heard for {silent:.0f} s ({answer})"
                continue
            self._seen.heard[name] = clock.now()
            if "over" in answer:
                return f"{name} is not in it any more: {answer['over']}"
            if answer.get("why"):
                return f"a rank on {name} {answer['why']}"
            said[name] = "switching" if "switching" in answer else "hot"
        runs.note(self._paths, group, members=said)
        return ""

    def _look(self, group: runs.Group, seen: Seen) -> None:
        """Ask for a token unless the engine's counters move."""
        host = self._member.host
        looker = wedge.Watch(
            host, self._paths, self._times.token_wait, idle_s=0.0, record=seen.counters
        )
        try:
            seen.no_token = looker.verdict(host.target(group.target)) or ""
        except errors.Problem as problem:
            progress.tell(f"{group.target}: whether it generates could not be told: {problem}")
            return
        if not seen.no_token:
            runs.note(self._paths, group, heard=time.time())

    def _end_all(self, group: runs.Group, reason: str) -> None:
        """End the group on every member, and decide whether it is started again."""
        body = {"run": group.run, "reason": reason}
        self._caller.ask_all(self._cluster.others, "end", body)
        lately = recovery.lately(group, clock.now())
        # What the memory floor has ended would end so again.
        final = ended.MARK in reason
        if not final and len(lately) >= recovery.STARTS:
            final, reason = True, f"{reason}; {recovery.NO_HELP}"
        state = runs.DOWN if final else runs.RECOVERING
        self._end_here(replace(group, starts=lately), reason, state)

    def _end_here(self, group: runs.Group, reason: str, state: str = runs.ENDED) -> None:
        """Stop this host's rank, unless somebody is switching here, who sees to it."""
        try:
            with switch_lock.held(self._paths.switch_lock, runs.WATCH, "none"):
                current = runs.load(self._paths)[self._cluster.name]
                if current.run != group.run or current.state != runs.HOT:
                    return
                words = runs.WORDS[state]
                progress.tell(f"{group.target} ends here ({words}): {reason}")
                runs.save(self._paths, group.over(state, reason))
                self._stop(group.target)
        except switch_lock.Locked as problem:
            progress.tell(f"{group.target}: {reason}; left to who is switching: {problem}")

    def _stop(self, target: str) -> None:
        switch.Switch(self._member.host, self._paths, progress.tell).stop(target)

    def _stop_orphans(self, group: runs.Group | None) -> None:
        """Stop a rank that is up although its group is not."""
        hot = group.target if group is not None and group.state == runs.HOT else None
        for target in self._member.host.targets.values():
            if target.cluster != self._cluster.name or target.name == hot:
                continue
            if self._unit(target.name).state not in ("hot", "loading"):
                continue
            try:
                with switch_lock.held(self._paths.switch_lock, runs.WATCH, "none"):
                    progress.tell(f"{target.unit} is up without its group: stopping it")
                    self._stop(target.name)
            except switch_lock.Locked:
                return

    def _unit(self, target: str) -> units.Unit:
        name = self._member.host.target(target).unit
        return units.show([name])[name]

    def _ailing(self, target: str) -> str:
        """What became of this host's rank; "" while it is hot."""
        unit = self._unit(target)
        if unit.state == "hot":
            return ""
        if by_floor := ended.of(self._paths, unit.name):
            return f"is down: {by_floor.reason}"
        return "ended by itself" if unit.state == "off" else f"is {unit.state}: {unit.failure}"
