"""Watches over the groups of this host: no half of one stays up.

Rank 0 asks every member every few seconds, and the engine for a token. When one is not what it
should be it ends the whole group, which `cluster_recovery` starts again as a whole.
Every other rank stops by itself when rank 0 is not heard for the lease.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

from lockstep.onhost.cluster import participant, progress, recovery, runs, wire_client
from lockstep.onhost.core import errors, layout, switch_lock, topology
from lockstep.onhost.switching import switch, wedge, wedge_state
from lockstep.onhost.systemd import units

BEAT_S = 3.0
LOOK_S = 15.0
TOKEN_WAIT_S = 60.0

Answer = dict[str, Any]


class Watch:
    """The watch over one cluster. `step` is called about once a second."""

    def __init__(
        self,
        member: participant.Member,
        cluster: topology.Cluster,
        caller: wire_client.Caller,
        beat_s: float = BEAT_S,
        look_s: float = LOOK_S,
        token_wait_s: float = TOKEN_WAIT_S,
    ) -> None:
        self._member = member
        self._cluster = cluster
        self._caller = caller
        self._beat_s, self._look_s, self._token_wait_s = beat_s, look_s, token_wait_s
        self._heard: dict[str, float] = {}
        self._run = ""
        self._stepped = self._looked = 0.0
        self._counters = wedge_state.Record()
        self._looking: threading.Thread | None = None
        self._no_token: tuple[str, str] | None = None
        self._recovery = recovery.Recovery(member.paths, cluster, caller)

    @property
    def _paths(self) -> layout.Paths:
        return self._member.paths

    def step(self) -> None:
        """Look once in `beat_s` seconds, and act."""
        if time.monotonic() - self._stepped < self._beat_s:
            return
        self._stepped = time.monotonic()
        group = runs.load(self._paths).get(self._cluster.name)
        if self._member.part is not None:
            # The switch under way looks after its ranks; whoever asked for it is waited for.
            self._run = ""
            return
        self._stop_orphans(group)
        if group is None:
            return
        if group.state == runs.HOT:
            self._begin(group)
            self._hot(group)
        elif group.state == runs.RECOVERING and self._cluster.rank == 0:
            self._recovery.step(group)
        elif group.state == runs.ENDED:
            self._ask_decision(group)

    def heard(self, body: Answer) -> Answer:
        """Rank 0 asks: what this rank is, for as long as both are of the same run."""
        group = runs.load(self._paths).get(self._cluster.name)
        if self._member.part is not None:
            return {"switching": True}
        if group is None or group.run != body["run"] or group.state != runs.HOT:
            why = group.reason if group and group.reason else "it was started anew"
            return {"over": why}
        self._heard["rank 0"] = time.monotonic()
        runs.note(self._paths, group, heard=time.time(), members=body["members"])
        return {"state": self._state(group.target), "why": self._failure(group.target)}

    def end(self, body: Answer) -> Answer:
        """Rank 0 ends the group."""
        group = runs.load(self._paths).get(self._cluster.name)
        if group is not None and group.run == body["run"] and group.state == runs.HOT:
            threading.Thread(target=self._end_here, args=(group, body["reason"])).start()
        return {}

    def _ask_decision(self, group: runs.Group) -> None:
        """Whether rank 0 left this run down; this rank says so then as well."""
        try:
            state = self._caller.ask(self._cluster.first, "state", timeout=3.0)
        except errors.Problem:
            return
        there = state["groups"].get(group.cluster, {})
        if there.get("run") == group.run and there.get("state") == runs.DOWN:
            runs.note(self._paths, group, state=runs.DOWN, reason=there["reason"])

    def _begin(self, group: runs.Group) -> None:
        """A run that this watch has not seen before: nobody is late yet."""
        if group.run == self._run:
            return
        self._run = group.run
        self._heard = {}
        now = time.monotonic()
        for name in ("rank 0", *(member.name for member in self._cluster.others)):
            self._heard[name] = now
        self._counters, self._looked, self._no_token = wedge_state.Record(), now, None

    def _hot(self, group: runs.Group) -> None:
        if self._cluster.rank == 0:
            reason = self._fault(group)
            if reason:
                self._end_all(group, reason)
            return
        silent = time.monotonic() - self._heard["rank 0"]
        if self._state(group.target) != "hot":
            self._end_here(group, f"rank {self._cluster.rank} {self._failure(group.target)}")
        elif silent > self._member.lease_s:
            self._end_here(
                group,
                f"{self._cluster.first.name}, rank 0, was not heard for {silent:.0f} s",
            )

    def _fault(self, group: runs.Group) -> str:
        """Why the group may not stay; "" when all is well."""
        me = self._cluster.me.name
        if self._state(group.target) != "hot":
            return f"rank 0 on {me} {self._failure(group.target)}"
        reason = self._beat(group)
        if reason:
            return reason
        if self._no_token and self._no_token[0] == group.run:
            return f"rank 0 on {me} generates nothing: {self._no_token[1]}"
        now = time.monotonic()
        idle = self._looking is None or not self._looking.is_alive()
        if idle and now - self._looked >= self._look_s:
            self._looked = now
            self._looking = threading.Thread(target=self._look, args=(group,), daemon=True)
            self._looking.start()
        return ""

    def _beat(self, group: runs.Group) -> str:
        members = {member.name: member for member in self._cluster.others}
        body = {"run": group.run, "members": group.members}
        answers = wire_client.at_once(
            lambda name: self._caller.ask(members[name], "beat", body, timeout=3.0), members
        )
        said, now = {self._cluster.me.name: "hot"}, time.monotonic()
        for name, answer in answers.items():
            if isinstance(answer, errors.Problem):
                silent = now - self._heard[name]
                said[name] = f"silent for {silent:.0f} s"
                if silent > self._member.lease_s:
                    return f"{name} was not heard for {silent:.0f} s ({answer})"
                continue
            self._heard[name] = now
            if "over" in answer:
                return f"{name} is not in it any more: {answer['over']}"
            if answer.get("state", "hot") != "hot":
                return f"a rank on {name} {answer['why']}"
            said[name] = "hot" if "state" in answer else "switching"
        runs.note(self._paths, group, members=said)
        return ""

    def _look(self, group: runs.Group) -> None:
        """Ask for a token unless the engine's counters move."""
        host = self._member.host
        looker = wedge.Watch(
            host, self._paths, self._token_wait_s, idle_s=0.0, record=self._counters
        )
        try:
            reason = looker.verdict(host.target(group.target))
        except errors.Problem as problem:
            progress.tell(f"{group.target}: whether it generates could not be told: {problem}")
            return
        if reason:
            self._no_token = (group.run, reason)
            return
        runs.note(self._paths, group, heard=time.time())

    def _end_all(self, group: runs.Group, reason: str) -> None:
        """End the group on every member, and decide whether it is started again."""
        members = {member.name: member for member in self._cluster.others}
        body = {"run": group.run, "reason": reason}
        wire_client.at_once(
            lambda name: self._caller.ask(members[name], "end", body, timeout=3.0), members
        )
        now = time.monotonic()
        lately = recovery.lately(group, now)
        state = runs.RECOVERING
        if len(lately) >= recovery.STARTS:
            reason = f"{reason}; {recovery.NO_HELP}"
            state = runs.DOWN
        self._end_here(replace(group, starts=lately), reason, state)

    def _end_here(self, group: runs.Group, reason: str, state: str = runs.ENDED) -> None:
        """Stop this host's rank, unless somebody is switching here, who sees to it."""
        try:
            with switch_lock.held(self._paths.run / "switch.lock", runs.WATCH, "none"):
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
        for target in self._member.host.targets.values():
            if target.cluster != self._cluster.name:
                continue
            hot = group is not None and group.state == runs.HOT
            if hot and group is not None and group.target == target.name:
                continue
            if self._state(target.name) not in ("hot", "loading"):
                continue
            try:
                with switch_lock.held(self._paths.run / "switch.lock", runs.WATCH, "none"):
                    progress.tell(f"{target.unit} is up without its group: stopping it")
                    self._stop(target.name)
            except switch_lock.Locked:
                return

    def _state(self, target: str) -> str:
        unit = self._member.host.target(target).unit
        return units.show([unit])[unit].state

    def _failure(self, target: str) -> str:
        name = self._member.host.target(target).unit
        unit = units.show([name])[name]
        return "ended by itself" if unit.state == "off" else f"is {unit.state}: {unit.failure}"
