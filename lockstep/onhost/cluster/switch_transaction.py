"""A switch in which several Sparks change at once: all of them, or none.

All members join (lock, checks, the launch check) before anything is stopped anywhere. Then each
stops its model, and the wanted ranks start. When rank 0 has generated a token, all members keep the
result. Otherwise each gets back its previous model. A member that loses contact rolls back on its
own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from lockstep.onhost.cluster import member_client, run_records, switch_participants
from lockstep.onhost.cluster import switch_member_calls as cluster_members
from lockstep.onhost.cluster.member_client import Answer
from lockstep.onhost.core import clock, config, errors, event_lines, layout
from lockstep.onhost.switching import hot_change_under_way, switch_step_durations
from lockstep.onhost.system import link_presence

# Attempts to join all members while one of them is switching.
_JOINS = 3


class ClusterSwitch:
    """One switch that was requested on this host; `say` gets the lines for the operator."""

    def __init__(
        self,
        host: config.HostConfig,
        paths: layout.Paths,
        say: Callable[[str], None] = event_lines.say,
        user: str = "",
        switch: str | None = None,
    ) -> None:
        self.hot_already = False  #: Whether `switch_to` had nothing to start.
        self._host = host
        self._paths = paths
        self._print = say
        self._user = user
        self._switch = switch or secrets.token_hex(8)
        self._steps = switch_step_durations.Steps()
        self._began = clock.now()
        self._cancellable = True
        cluster = next(iter(host.clusters.values()))
        self._host_name, self._rank = cluster.own_member.name, cluster.rank
        self._switch_members = cluster_members.SwitchMembers(host, paths, self._switch)
        self._planner = switch_participants.Planner(
            host, self._switch_members, self._host_name, say
        )
        self._previous: switch_participants.Plan = {}

    def _say(self, line: str, kind: str = "") -> None:
        self._print(event_lines.EventLine(kind, line) if kind else line)

    def switch_to(self, name: str) -> int:
        """Make `name` hot: on all members of its cluster, or here while no cluster is up."""
        model = self._host.model(name)
        with self._steps.time_step("check"):
            self._check_link(model)
            plan = self._planner.switch_plan(model)
            up = self._planner.is_up_on_all_members(model, plan)
            if up and self._planner.check_generates(model):
                self.hot_already = True
                return errors.EXIT_DONE
            self._planner.check_launch(model)
        with self._undo_switch_on_problem(name):
            with self._steps.time_step("check"):
                plan, _ = self._join_with_retries(
                    name, plan, lambda: self._planner.switch_plan(model)
                )
                made_meanwhile = not up and self._planner.is_up_on_all_members(model, plan)
                if made_meanwhile and self._planner.check_generates(model):
                    self.hot_already = True
                    self._undo_on_members("hot already")
                    return errors.EXIT_DONE
            return self._start_model_or_fallback(model, plan)

    def stop_all_clusters(self) -> int:
        """Stop all of this host's clusters, and the running models here.

        Raises MemberUnreachable if this host's own agent does not answer.
        """
        plan = self._planner.plan_to_stop_all()
        with self._undo_switch_on_problem("none"):
            plan, states = self._join_with_retries("none", plan, self._planner.plan_to_stop_all)
            up = any(map(cluster_members.up_models, states.values()))
            failures = self._drop_hot_models()
            self._commit({})
        if failures:
            raise errors.Problem("; ".join(failures.values()))
        where = (
            f" on {', '.join(self._switch_members.names)}"
            if plan.keys() - {self._host_name}
            else ""
        )
        self._say(f"no model is hot{where}" if up else "no model was hot", "done")
        return errors.EXIT_DONE

    def rehearse_switch(self, name: str) -> int:
        """Describe the effect of a switch; raise Problem if it would be refused; change nothing."""
        if name == "none":
            running_clusters = cluster_members.running_clusters(
                self._switch_members.states(), self._host
            )
            members = ", ".join(self._planner.members(running_clusters)) or "this host"
            self._say(f"would stop what is up on {members}")
            return errors.EXIT_DONE
        model = self._host.model(name)
        self._check_link(model)
        plan = self._planner.switch_plan(model)
        self._planner.check_launch(model)
        plan, _ = self._join_with_retries(name, plan, lambda: self._planner.switch_plan(model))
        self._undo_on_members("only looked")
        self._say(f"{', '.join(plan)} can join, and have the same of all that must be the same")
        for member, previous in self._previous.items():
            self._say(f"{member}: would stop {previous}" if previous else f"{member}: no model up")
        return errors.EXIT_DONE

    def _check_link(self, model: config.Model) -> None:
        """Raise Problem if this host has no link: otherwise only silence would be reported."""
        if cluster := self._host.cluster_of_model(model.name):
            link_presence.refuse_missing_links(model.name, cluster, self._paths)

    def undo(self) -> None:
        """Make all members undo a switch that was cut off here."""
        self._say("the switch was cut off: every member gets back what it had")
        self._undo_on_members("the switch itself was killed or stopped")

    @contextmanager
    def _undo_switch_on_problem(self, name: str) -> Iterator[None]:
        work = hot_change_under_way.HotWork(name, self._user, cluster_switch=self._switch)
        with hot_change_under_way.keep_on_record(self._paths, "switch", work):
            try:
                yield
            except errors.Problem as problem:
                self._undo_on_members(str(problem))
                raise

    def _join_with_retries(
        self,
        wanted_name: str,
        plan: switch_participants.Plan,
        again: Callable[[], switch_participants.Plan],
    ) -> tuple[switch_participants.Plan, dict[str, Answer]]:
        """Make every member take its lock and check that it can; otherwise nobody holds a lock.

        `again` makes the plan anew, because a switch that ended meanwhile may have changed its
        basis. Returns the plan by which all have joined, and their states then.
        """
        tries_left = _JOINS
        while True:
            try:
                return plan, self._ask_all_to_join(wanted_name, plan)
            except errors.Problem as problem:
                self._undo_on_members("a member could not join")
                tries_left -= 1
                if problem.code != errors.EXIT_LOCKED or not tries_left:
                    raise
            # Two requests on two members at once hold what the other one needs. Both let go, and
            # the one of the lower rank comes first.
            clock.sleep(0.3 + self._rank)
            plan = again()

    def _ask_all_to_join(
        self, wanted_name: str, plan: switch_participants.Plan
    ) -> dict[str, Answer]:
        self._previous = {}
        body = {"user": self._user, "asked_on": self._host_name, "wanted_name": wanted_name}
        for name in self._switch_members.names:
            answer = self._ask_to_join(name, {**body, "model": plan[name]})
            if answer is not None:
                self._previous[name] = answer["previous"]
        states = self._switch_members.states()
        self._planner.refuse_if_cluster_started(plan, states)
        if self._user == run_records.WATCH:
            self._planner.check_restart(wanted_name, states)
        return states

    def _ask_to_join(self, name: str, body: Answer) -> Answer | None:
        """Return a member's answer; None if it is silent and only has to stop, as it does alone."""
        is_needed = body["model"] is not None or name == self._host_name
        try:
            if not is_needed and name in self._switch_members.silent:
                raise member_client.MemberUnreachable(self._switch_members.silent[name])
            # The member checks its image and every file of its weights.
            return self._switch_members.ask(name, "prepare", body, timeout=60)
        except member_client.MemberUnreachable as problem:
            if is_needed:
                raise
            self._say(f"{problem}; it stops its rank by itself")
            self._switch_members.leave_out_member(name)
            return None

    def _start_model_or_fallback(self, model: config.Model, plan: switch_participants.Plan) -> int:
        fallback = self._host.models.get(model.fallback) if model.fallback else None
        attempts = [model, *([fallback] if fallback else [])]
        try:
            if not self._drop_hot_models():
                for attempt in attempts:
                    wanted_ranks = {name: attempt.name for name in plan if plan[name]}
                    if self._planner.has_all_members(
                        attempt.name, wanted_ranks
                    ) and self._start_ranks(wanted_ranks, attempt):
                        self._commit(wanted_ranks)
                        return self._report_success(model, attempt, wanted_ranks)
                    self._drop_hot_models()
        except hot_change_under_way.SwitchCancellation as error:
            return self._undo_cancelled_switch(model, error.request)
        return self._restore_previous_models(model)

    def _undo_cancelled_switch(
        self, model: config.Model, request: hot_change_under_way.CancellationRequest
    ) -> int:
        """Undo a switch that somebody cancelled while ranks were starting."""
        self._say(f"{request.user} cancelled the switch to {model.name}")
        self._drop_hot_models()
        if request.restore:
            code = self._restore_previous_models(model, "was cancelled")
            return errors.EXIT_CANCELLED if code == errors.EXIT_FAILED else code
        self._commit({})
        self._say(f"the switch to {model.name} was cancelled; no model is hot", "done")
        return errors.EXIT_CANCELLED

    def _report_success(
        self, model: config.Model, hot: config.Model, wanted_ranks: Mapping[str, str]
    ) -> int:
        if model.cluster:
            self._say(f"{hot.name} is hot on {', '.join(wanted_ranks)}", "done")
        if hot.name == model.name:
            return errors.EXIT_DONE
        self._say(f"{model.name} FAILED; its fallback {hot.name} is hot", "failed")
        return errors.EXIT_FALLBACK

    def _drop_hot_models(self) -> dict[str, str]:
        with self._steps.time_step("stop"):
            failures = self._switch_members.execute_on_members(
                "drop", {name: {} for name in self._switch_members.names}, self._say_lines_of_stop
            )
        for name, why in failures.items():
            self._say(f"{name}: {why}")
        return failures

    def _start_ranks(self, wanted_ranks: Mapping[str, str], model: config.Model) -> bool:
        """Start a model's ranks together; tell whether rank 0 gave a token and all are up.

        Raises SwitchCancellation; then ranks may still be starting.
        """
        cluster = self._host.cluster_of_model(model.name)
        answering = cluster.first_member.name if cluster else self._host_name

        def hear(name: str, lines: list[str]) -> None:
            if self._cancellable:
                hot_change_under_way.raise_if_cancelled(self._paths, self._began)
            for line in lines:
                kind = event_lines.kind_of(line)
                if name == answering:
                    if kind == "took":
                        steps = filter(None, (str(self._steps), line.partition(": ")[2]))
                        line = event_lines.EventLine(kind, f"took: {', '.join(steps)}")
                    self._say(line)
                elif kind in ("failed", "why"):
                    self._say(f"{name}: {line}", kind)

        bodies = {name: {"model": model_name} for name, model_name in wanted_ranks.items()}
        failures = self._switch_members.execute_on_members("start", bodies, hear, together=True)
        for name, why in failures.items():
            self._say(f"{model.name} FAILED on {name}: {why}", "failed")
        return not failures

    def _restore_previous_models(self, model: config.Model, how: str = "FAILED") -> int:
        """Give each member its previous hot model back, as far as possible.

        This cannot be cancelled: ranks that start would be left alone.
        """
        self._cancellable = False
        hot_again: dict[str, str] = {}
        alone: dict[str, Answer] = {}
        previous_models = {name: was for name, was in self._previous.items() if was}
        for was in dict.fromkeys(previous_models.values()):
            members = {name: was for name in previous_models if previous_models[name] == was}
            if not self._planner.is_cluster_model(was):
                alone |= {
                    name: {"model": was} for name in members if name in self._switch_members.names
                }
            elif self._planner.has_all_members(was, members) and self._start_ranks(
                members, self._host.model(was)
            ):
                hot_again |= members
        failures = (
            self._switch_members.execute_on_members("start", alone, self._say_member_lines)
            if alone
            else {}
        )
        hot_again |= {name: previous_models[name] for name in alone if name not in failures}
        self._commit(hot_again)
        return self._report_restored_models(model, previous_models, hot_again, how)

    def _report_restored_models(
        self,
        model: config.Model,
        previous_models: Mapping[str, str],
        hot_again: Mapping[str, str],
        how: str,
    ) -> int:
        """Report which members have their previous model again; return the exit code."""
        missing = {name: was for name, was in previous_models.items() if name not in hot_again}
        failed_members = {
            name: was for name, was in missing.items() if name in self._switch_members.names
        }
        # A silent member acts on its own, so it may well have its model again.
        lost_members = {name: was for name, was in missing.items() if name not in failed_members}
        parts = [
            f"{label}: {', '.join(f'{was} on {name}' for name, was in members.items())}"
            for label, members in (
                ("hot again", hot_again),
                ("NOT hot again", failed_members),
                ("not heard from, which undoes it alone", lost_members),
            )
            if members
        ]
        if hot_again or lost_members:
            is_undone = how != "FAILED" and not failed_members
            outcome = f"the switch to {model.name} {how}; {'; '.join(parts)}"
            self._say(outcome, "done" if is_undone else "failed")
        else:
            outcome = "; ".join(parts or ["none was before"])
            self._say(f"NO MODEL IS HOT: {model.name} {how.lower()}; {outcome}", "failed")
        return errors.EXIT_FAILED if previous_models and not missing else errors.EXIT_NOTHING_HOT

    def _commit(self, hot: Mapping[str, str]) -> None:
        """Make every member keep its hot model; rank 0 last, which then watches over the others."""
        ranks = {
            cluster.first_member.name
            for cluster in map(self._host.cluster_of_model, hot.values())
            if cluster
        }
        for name in sorted(self._switch_members.names, key=lambda name: name in ranks):
            try:
                self._switch_members.ask(name, "commit", {"hot": hot.get(name)})
            except errors.Problem as problem:
                self._say(str(problem))

    def _undo_on_members(self, reason: str) -> None:
        """Make all members undo their parts, and wait until they have."""
        pending = self._switch_members.names
        while pending:
            self._switch_members.ask_all("abort", {name: {"reason": reason} for name in pending})
            states = self._switch_members.states().items()
            out = {name for name, state in states if state["switch"] != self._switch}
            pending = [name for name in self._switch_members.names if name not in out]
            if pending:
                clock.sleep(0.5)

    def _say_lines_of_stop(self, name: str, lines: list[str]) -> None:
        # That no model is hot there is no end of the switch.
        self._say_member_lines(
            name, [line for line in lines if event_lines.kind_of(line) != "done"]
        )

    def _say_member_lines(self, name: str, lines: list[str]) -> None:
        for line in lines:
            self._say(f"{name}: {line}", event_lines.kind_of(line))
