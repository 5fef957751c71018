"""A switch in which several Sparks change at once: all of them, or none.

Everybody joins (lock, checks, the launch check) before anything is stopped anywhere; then all drop
what they have, the wanted ranks start, and when rank 0 has generated a token everybody keeps it.
Otherwise everybody gets back what was hot there. Who is not heard from undoes its part by itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from lockstep.onhost.cluster import members as cluster_crew
from lockstep.onhost.cluster import planner, runs, wire_client
from lockstep.onhost.cluster.wire_client import Answer
from lockstep.onhost.core import clock, config, errors, layout, output
from lockstep.onhost.switching import cancellation, timing, unfinished
from lockstep.onhost.system import cluster_link

# How often it is tried to join all members while one of them is switching.
_JOINS = 3


class GroupSwitch:
    """One switch, asked for on this host; `say` gets the lines for the operator."""

    def __init__(
        self,
        host: config.Host,
        paths: layout.Paths,
        say: Callable[[str], None] = output.say,
        user: str = "",
        switch: str | None = None,
    ) -> None:
        self.hot_already = False  #: Whether `to` had nothing to start.
        self._host = host
        self._paths = paths
        self._say = say
        self._user = user
        self._switch = switch or secrets.token_hex(8)
        self._steps = timing.Steps()
        self._began = clock.now()
        self._cancellable = True
        cluster = next(iter(host.clusters.values()))
        self._here, self._rank = cluster.me.name, cluster.rank
        self._crew = cluster_crew.Crew(host, paths, self._switch)
        self._planner = planner.Planner(host, self._crew, self._here, say)
        self._previous: planner.Plan = {}

    def to(self, name: str) -> int:
        """Make `name` hot: on all members of its cluster, or here and no group elsewhere."""
        target = self._host.target(name)
        with self._steps.timed("check"):
            self._linked(target)
            plan = self._planner.concerned(target)
            up = self._planner.up_everywhere(target, plan)
            if up and self._planner.serves(target):
                self.hot_already = True
                return errors.EXIT_DONE
            self._planner.check_launch(target)
        with self._on_record(name):
            with self._steps.timed("check"):
                plan, _ = self._join(name, plan, lambda: self._planner.concerned(target))
                made_meanwhile = not up and self._planner.up_everywhere(target, plan)
                if made_meanwhile and self._planner.serves(target):
                    self.hot_already = True
                    self._abort("hot already")
                    return errors.EXIT_DONE
            return self._replace(target, plan)

    def none(self) -> int:
        """Stop every group of this host's clusters, and what is up here.

        Unreachable when this host's own agent does not answer.
        """
        plan = self._planner.ending()
        with self._on_record("none"):
            plan, states = self._join("none", plan, self._planner.ending)
            up = any(map(cluster_crew.up, states.values()))
            failed = self._drop()
            self._commit({})
        if failed:
            raise errors.Problem("; ".join(failed.values()))
        where = f" on {', '.join(self._crew.names)}" if plan.keys() - {self._here} else ""
        self._say(f"no model is hot{where}" if up else "no model was hot")
        return errors.EXIT_DONE

    def rehearse(self, name: str) -> int:
        """Say what a switch would do. Problem when it would be refused; touches nothing."""
        if name == "none":
            found = cluster_crew.running(self._crew.states(), self._host)
            members = ", ".join(self._planner.members(found)) or "this host"
            self._say(f"would stop what is up on {members}")
            return errors.EXIT_DONE
        target = self._host.target(name)
        self._linked(target)
        plan = self._planner.concerned(target)
        self._planner.check_launch(target)
        plan, _ = self._join(name, plan, lambda: self._planner.concerned(target))
        self._abort("only looked")
        self._say(f"{', '.join(plan)} can join, and have the same of all that must be the same")
        for member, previous in self._previous.items():
            self._say(f"{member}: would stop {previous}" if previous else f"{member}: no model up")
        return errors.EXIT_DONE

    def _linked(self, target: config.Target) -> None:
        """Problem where this host has no link: it would only say that nobody answers."""
        if cluster := self._host.cluster(target.name):
            cluster_link.check(target.name, cluster, self._paths)

    def undo(self) -> None:
        """Have everybody undo a switch that was cut off here."""
        self._say("the switch was cut off: every member gets back what it had")
        self._abort("the switch itself was killed or stopped")

    @contextmanager
    def _on_record(self, name: str) -> Iterator[None]:
        work = unfinished.Unfinished(name, None, self._user, self._switch)
        with unfinished.recorded(self._paths, work):
            try:
                yield
            except errors.Problem as problem:
                self._abort(str(problem))
                raise

    def _join(
        self, wanted: str, plan: planner.Plan, again: Callable[[], planner.Plan]
    ) -> tuple[planner.Plan, dict[str, Answer]]:
        """Everybody takes its lock and looks whether it can; else nobody holds anything.

        `again` makes the plan anew: whoever was waited for has changed what it was made of. What
        comes back is the plan by which all have joined, and what they said then.
        """
        left = _JOINS
        while True:
            try:
                return plan, self._all_join(wanted, plan)
            except errors.Problem as problem:
                self._abort("a member could not join")
                left -= 1
                if problem.code != errors.EXIT_LOCKED or not left:
                    raise
            # Two that ask on two members at once hold what the other one needs; both let go,
            # and the one of the lower rank comes first.
            clock.sleep(0.3 + self._rank)
            plan = again()

    def _all_join(self, wanted: str, plan: planner.Plan) -> dict[str, Answer]:
        self._previous = {}
        body = {"user": self._user, "asked_on": self._here, "wanted": wanted}
        for name in self._crew.names:
            answer = self._joined(name, {**body, "target": plan[name]})
            if answer is not None:
                self._previous[name] = answer["previous"]
        states = self._crew.states()
        self._planner.still(plan, states)
        if self._user == runs.WATCH:
            self._planner.owed(wanted, states)
        return states

    def _joined(self, name: str, body: Answer) -> Answer | None:
        """A member's answer; None where one is silent that is to stop only, which it does alone."""
        needed = body["target"] is not None or name == self._here
        try:
            if not needed and name in self._crew.silent:
                raise wire_client.Unreachable(self._crew.silent[name])
            # Its image and every file of its weights are looked at.
            return self._crew.ask(name, "prepare", body, timeout=60)
        except wire_client.Unreachable as problem:
            if needed:
                raise
            self._say(f"{problem}; it stops its rank by itself")
            self._crew.leave_out(name)
            return None

    def _replace(self, target: config.Target, plan: planner.Plan) -> int:
        fallback = self._host.targets.get(target.fallback) if target.fallback else None
        attempts = [target, *([fallback] if fallback else [])]
        try:
            if not self._drop():
                for each in attempts:
                    wanted = {name: each.name for name in plan if plan[name]}
                    if self._planner.whole(each.name, wanted) and self._start(wanted, each):
                        self._commit(wanted)
                        return self._ended(target, each, wanted)
                    self._drop()
        except cancellation.Cancelled as cancelled:
            return self._take_back(target, cancelled.request)
        return self._bring_back(target)

    def _take_back(self, target: config.Target, request: cancellation.Request) -> int:
        """Undo a switch that somebody cancelled while ranks were starting."""
        self._say(f"{request.user} cancelled the switch to {target.name}")
        self._drop()
        if request.restore:
            code = self._bring_back(target, "was cancelled")
            return errors.EXIT_CANCELLED if code == errors.EXIT_FAILED else code
        self._commit({})
        self._say(f"the switch to {target.name} was cancelled; no model is hot")
        return errors.EXIT_CANCELLED

    def _ended(self, target: config.Target, hot: config.Target, wanted: Mapping[str, str]) -> int:
        if target.cluster:
            self._say(f"{hot.name} is hot on {', '.join(wanted)}")
        if hot.name == target.name:
            return errors.EXIT_DONE
        self._say(f"{target.name} FAILED; its fallback {hot.name} is hot")
        return errors.EXIT_FALLBACK

    def _drop(self) -> dict[str, str]:
        with self._steps.timed("stop"):
            failed = self._crew.do("drop", {name: {} for name in self._crew.names}, self._hear_all)
        for name, why in failed.items():
            self._say(f"{name}: {why}")
        return failed

    def _start(self, wanted: Mapping[str, str], target: config.Target) -> bool:
        """Start a target's ranks together; whether rank 0 has generated a token and all are up.

        Raises Cancelled, and then ranks may still be starting.
        """
        cluster = self._host.cluster(target.name)
        answering = cluster.first.name if cluster else self._here

        def hear(name: str, lines: list[str]) -> None:
            if self._cancellable:
                cancellation.check(self._paths, self._began)
            for line in lines:
                if name == answering:
                    ours = f"took: {self._steps}, " if line.startswith("took: ") else ""
                    self._say(ours + line.removeprefix("took: " if ours else ""))
                elif "FAILED" in line or line.startswith("  "):
                    self._say(f"{name}: {line}")

        bodies = {name: {"target": each} for name, each in wanted.items()}
        failed = self._crew.do("start", bodies, hear, together=True)
        for name, why in failed.items():
            self._say(f"{target.name} FAILED on {name}: {why}")
        return not failed

    def _bring_back(self, target: config.Target, how: str = "FAILED") -> int:
        """Everybody gets what was hot there before, as far as it can be had.

        That cannot be cancelled: ranks that start would be left alone.
        """
        self._cancellable = False
        kept: dict[str, str] = {}
        alone: dict[str, Answer] = {}
        owed = {name: was for name, was in self._previous.items() if was}
        for was in dict.fromkeys(owed.values()):
            members = {name: was for name in owed if owed[name] == was}
            if not self._planner.is_group(was):
                alone |= {name: {"target": was} for name in members if name in self._crew.names}
            elif self._planner.whole(was, members) and self._start(members, self._host.target(was)):
                kept |= members
        failed = self._crew.do("start", alone, self._hear_all) if alone else {}
        kept |= {name: owed[name] for name in alone if name not in failed}
        self._commit(kept)
        return self._told(target, owed, kept, how)

    def _told(
        self, target: config.Target, owed: Mapping[str, str], kept: Mapping[str, str], how: str
    ) -> int:
        """Say of every member that had a model whether it has it again, and end accordingly."""
        missing = {name: was for name, was in owed.items() if name not in kept}
        failed = {name: was for name, was in missing.items() if name in self._crew.names}
        # What a member does that nobody hears from is its own: it may well have its model again.
        lost = {name: was for name, was in missing.items() if name not in failed}
        parts = [
            f"{what}: {', '.join(f'{was} on {name}' for name, was in found.items())}"
            for what, found in (
                ("hot again", kept),
                ("NOT hot again", failed),
                ("not heard from, which undoes it alone", lost),
            )
            if found
        ]
        if kept or lost:
            self._say(f"the switch to {target.name} {how}; {'; '.join(parts)}")
        else:
            parts = parts or ["none was before"]
            self._say(f"NO MODEL IS HOT: {target.name} {how.lower()}; {'; '.join(parts)}")
        return errors.EXIT_FAILED if owed and not missing else errors.EXIT_NOTHING_HOT

    def _commit(self, hot: Mapping[str, str]) -> None:
        """Everybody keeps what is hot there; rank 0 last, which then watches over the others."""
        ranks = {cluster.first.name for cluster in map(self._host.cluster, hot.values()) if cluster}
        for name in sorted(self._crew.names, key=lambda name: name in ranks):
            try:
                self._crew.ask(name, "commit", {"hot": hot.get(name)})
            except errors.Problem as problem:
                self._say(str(problem))

    def _abort(self, reason: str) -> None:
        """Have everybody undo its part, and wait until they have."""
        pending = self._crew.names
        while pending:
            self._crew.ask_all("abort", {name: {"reason": reason} for name in pending})
            states = self._crew.states().items()
            out = {name for name, state in states if state["switch"] != self._switch}
            pending = [name for name in self._crew.names if name not in out]
            if pending:
                clock.sleep(0.5)

    def _hear_all(self, name: str, lines: list[str]) -> None:
        for line in lines:
            if not line.startswith("no model"):
                self._say(f"{name}: {line}")
