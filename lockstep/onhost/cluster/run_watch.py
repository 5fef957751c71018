"""The watch over the clusters of this host: no half of one stays up.

Rank 0 asks every member every few seconds, and the engine for a token. If one of them fails, rank 0
ends the whole cluster, which `restart_after_fault` starts again as a whole. Every other rank stops
on its own if rank 0 is silent for the lease.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from lockstep.onhost.cluster import (
    long_work,
    member_client,
    participant,
    restart_after_fault,
    run_records,
)
from lockstep.onhost.cluster.member_client import Answer
from lockstep.onhost.core import clock, errors, switch_lock
from lockstep.onhost.records import watch_findings
from lockstep.onhost.switching import switch, wedge_watch
from lockstep.onhost.systemd import units


@dataclass
class RunObservation:
    """The watch's observations of one run: when they began, and when each member last answered."""

    run: str = ""
    began: float = field(default_factory=clock.now)
    last_heard: dict[str, float] = field(default_factory=dict)
    last_look: float = field(default_factory=clock.now)
    looking: threading.Thread | None = None
    counters: watch_findings.WedgeRecord = field(default_factory=watch_findings.WedgeRecord)
    no_token: str = ""

    def silence_s(self, name: str) -> float:
        """Return the seconds since this member's last answer."""
        return clock.now() - self.last_heard.get(name, self.began)


class RunWatch:
    """The watch over one cluster; `check_run` is called about once a second."""

    def __init__(self, member: participant.MemberAgent, caller: member_client.MemberClient) -> None:
        self._member, self._paths, self._times = member, member.paths, member.times
        self._caller, self._cluster = caller, caller.cluster
        self._observation = RunObservation()
        self._last_step = 0.0

    def check_run(self) -> None:
        """Look once in a beat, and act."""
        if clock.now() - self._last_step < self._times.beat:
            return
        self._last_step = clock.now()
        cluster_run = self._recorded_run()
        if self._member.part is not None:
            # The switch under way looks after its ranks, and this watch waits for it.
            self._observation = RunObservation()
            return
        self._stop_orphans(cluster_run)
        if cluster_run is None:
            return
        if cluster_run.state == run_records.HOT:
            if self._observation.run != cluster_run.run:
                self._observation = RunObservation(cluster_run.run)
            self._watch_hot_cluster(cluster_run)
        elif cluster_run.state == run_records.RECOVERING and self._cluster.rank == 0:
            restart_after_fault.recover_cluster(cluster_run, self._paths, self._caller)
        elif cluster_run.state == run_records.ENDED_BY_FAULT:
            self._copy_down_decision(cluster_run)

    def receive_beat(self, body: Answer) -> Answer:
        """Answer rank 0 with the fault of this rank, as long as both are in the same run.

        `memory_kill`: the memory watch has ended it, as its record says, which outlives this agent.
        """
        cluster_run = self._recorded_run()
        if self._member.part is not None:
            return {"switching": True}
        if (
            cluster_run is None
            or cluster_run.run != body["run"]
            or cluster_run.state != run_records.HOT
        ):
            kill = (
                self._memory_kill(cluster_run)
                if cluster_run and cluster_run.run == body["run"]
                else None
            )
            over = (cluster_run and cluster_run.reason) or "it was started anew"
            return {"over": over, "memory_kill": kill is not None}
        self._observation.last_heard[self._cluster.first_member.name] = clock.now()
        run_records.change_run_fields(
            self._paths, cluster_run, sign_time=time.time(), members=body["members"]
        )
        kill = self._memory_kill(cluster_run)
        return {"why": self._rank_fault(cluster_run), "memory_kill": kill is not None}

    def end_cluster_here(self, body: Answer) -> Answer:
        """End the cluster at the request of rank 0."""
        cluster_run = self._recorded_run()
        if (
            cluster_run is not None
            and cluster_run.run == body["run"]
            and cluster_run.state == run_records.HOT
        ):
            threading.Thread(target=self._stop_own_rank, args=(cluster_run, body["reason"])).start()
        return {}

    def _recorded_run(self) -> run_records.ClusterRun | None:
        return run_records.recorded_runs(self._paths).get(self._cluster.name)

    def _copy_down_decision(self, cluster_run: run_records.ClusterRun) -> None:
        """Ask whether rank 0 left this run down; if so, record the same here."""
        try:
            state = self._caller.ask(self._cluster.first_member, "state", timeout=3.0)
        except errors.Problem:
            return
        first_run = state["groups"].get(cluster_run.cluster, {})
        if first_run.get("run") == cluster_run.run and first_run.get("state") == run_records.DOWN:
            run_records.change_run_fields(
                self._paths,
                cluster_run,
                state=run_records.DOWN,
                reason=first_run["reason"],
            )

    def _watch_hot_cluster(self, cluster_run: run_records.ClusterRun) -> None:
        rank, first = self._cluster.rank, self._cluster.first_member.name
        if rank == 0:
            reason, is_memory_kill = self._cluster_fault(cluster_run)
            if reason:
                self._end_cluster_everywhere(cluster_run, reason, is_memory_kill)
        elif why := self._rank_fault(cluster_run):
            self._stop_own_rank(cluster_run, f"rank {rank} {why}")
        elif (silent := self._observation.silence_s(first)) > self._times.lease:
            self._stop_own_rank(cluster_run, f"{first}, rank 0, was not heard for {silent:.0f} s")

    def _cluster_fault(self, cluster_run: run_records.ClusterRun) -> tuple[str, bool]:
        """Return why the cluster may not stay, "" if it may, and if a memory watch ended it."""
        me, observation = self._cluster.own_member.name, self._observation
        if why := self._rank_fault(cluster_run):
            return f"rank 0 on {me} {why}", self._memory_kill(cluster_run) is not None
        reason, is_memory_kill = self._fault_by_beats(cluster_run)
        if reason:
            return reason, is_memory_kill
        if observation.no_token:
            return f"rank 0 on {me} generates nothing: {observation.no_token}", False
        idle = observation.looking is None or not observation.looking.is_alive()
        if idle and clock.now() - observation.last_look >= self._times.look:
            observation.last_look = clock.now()
            observation.looking = threading.Thread(
                target=self._check_for_token, args=(cluster_run, observation), daemon=True
            )
            observation.looking.start()
        return "", False

    def _fault_by_beats(self, cluster_run: run_records.ClusterRun) -> tuple[str, bool]:
        member_states = {self._cluster.own_member.name: "hot"}
        body = {"run": cluster_run.run, "members": cluster_run.members}
        for name, answer in self._caller.ask_all(self._cluster.other_members, "beat", body).items():
            if isinstance(answer, errors.Problem):
                silent = self._observation.silence_s(name)
                member_states[name] = f"silent for {silent:.0f} s"
                if silent > self._times.lease:
                    return f"{name} was not heard for {silent:.0f} s ({answer})", False
                continue
            self._observation.last_heard[name] = clock.now()
            # An agent of an earlier release does not tell; its cluster is started again.
            is_memory_kill = bool(answer.get("memory_kill"))
            if "over" in answer:
                return f"{name} is not in it any more: {answer['over']}", is_memory_kill
            if answer.get("why"):
                return f"a rank on {name} {answer['why']}", is_memory_kill
            member_states[name] = "switching" if "switching" in answer else "hot"
        run_records.change_run_fields(self._paths, cluster_run, members=member_states)
        return "", False

    def _check_for_token(
        self, cluster_run: run_records.ClusterRun, observation: RunObservation
    ) -> None:
        """Ask for a token unless the engine's counters move."""
        host = self._member.host
        looker = wedge_watch.WedgeWatch(
            host, self._paths, self._times.token_wait, record=observation.counters
        )
        try:
            observation.no_token = looker.wedge_reason(host.model(cluster_run.model)) or ""
        except errors.Problem as problem:
            long_work.print_to_journal(
                f"{cluster_run.model}: whether it generates could not be told: {problem}"
            )
            return
        if not observation.no_token:
            run_records.change_run_fields(self._paths, cluster_run, sign_time=time.time())

    def _end_cluster_everywhere(
        self, cluster_run: run_records.ClusterRun, reason: str, is_memory_kill: bool
    ) -> None:
        """End the cluster on every member, and decide whether it is started again."""
        body = {"run": cluster_run.run, "reason": reason}
        self._caller.ask_all(self._cluster.other_members, "end", body)
        lately = restart_after_fault.recent_restart_times(cluster_run, clock.now())
        # An engine that the memory watch has ended would end the same way again.
        final = is_memory_kill
        if not final and len(lately) >= restart_after_fault.STARTS:
            final, reason = True, f"{reason}; {restart_after_fault.NO_HELP}"
        state = run_records.DOWN if final else run_records.RECOVERING
        self._stop_own_rank(replace(cluster_run, starts=lately), reason, state)

    def _stop_own_rank(
        self,
        cluster_run: run_records.ClusterRun,
        reason: str,
        state: str = run_records.ENDED_BY_FAULT,
    ) -> None:
        """Stop this host's rank, unless a switch is under way here, which handles it."""
        try:
            with switch_lock.hold_lock(self._paths.switch_lock, run_records.WATCH, "none"):
                current = run_records.recorded_runs(self._paths)[self._cluster.name]
                if current.run != cluster_run.run or current.state != run_records.HOT:
                    return
                words = run_records.WORDS[state]
                long_work.print_to_journal(f"{cluster_run.model} ends here ({words}): {reason}")
                run_records.save(self._paths, cluster_run.as_ended_run(state, reason))
                self._stop_rank(cluster_run.model)
        except switch_lock.SwitchUnderWay as problem:
            long_work.print_to_journal(
                f"{cluster_run.model}: {reason}; left to who is switching: {problem}"
            )

    def _stop_rank(self, model: str) -> None:
        switch.Switch(self._member.host, self._paths, long_work.print_to_journal).stop_failed_model(
            model
        )

    def _stop_orphans(self, cluster_run: run_records.ClusterRun | None) -> None:
        """Stop a rank that is up although its cluster is not."""
        hot = (
            cluster_run.model
            if cluster_run is not None and cluster_run.state == run_records.HOT
            else None
        )
        for model in self._member.host.models.values():
            if model.cluster != self._cluster.name or model.name == hot:
                continue
            if self._unit_state(model.name).state not in ("hot", "loading"):
                continue
            try:
                with switch_lock.hold_lock(self._paths.switch_lock, run_records.WATCH, "none"):
                    long_work.print_to_journal(
                        f"{model.unit} is up without its cluster: stopping it"
                    )
                    self._stop_rank(model.name)
            except switch_lock.SwitchUnderWay:
                return

    def _unit_state(self, model: str) -> units.Unit:
        name = self._member.host.model(model).unit
        return units.units_by_name([name])[name]

    def _memory_kill(self, cluster_run: run_records.ClusterRun) -> watch_findings.MemoryKill | None:
        """Return how the memory watch has ended this host's rank in this run, or None."""
        unit = self._member.host.model(cluster_run.model).unit
        kill = watch_findings.load(self._paths).kills.get(unit)
        # The record of an earlier run stays where no test question is asked.
        return kill if kill and kill.when >= cluster_run.since else None

    def _rank_fault(self, cluster_run: run_records.ClusterRun) -> str:
        """Describe the fault of this host's rank; "" while it is hot."""
        unit = self._unit_state(cluster_run.model)
        if unit.state == "hot":
            return ""
        if memory_kill := self._memory_kill(cluster_run):
            return f"is down: {memory_kill.reason}"
        return "ended by itself" if unit.state == "off" else f"is {unit.state}: {unit.failure}"
