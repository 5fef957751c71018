"""Plans of switches: which Sparks take part, and whether it may begin; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lockstep.onhost.cluster import launch_check, member_client, run_records
from lockstep.onhost.cluster import switch_member_calls as members
from lockstep.onhost.cluster.member_client import Answer
from lockstep.onhost.core import config, errors, event_lines
from lockstep.onhost.systemd import units

#: Member → model that will be hot there, None for no model.
Plan = dict[str, str | None]


def concerns_other_members(host: config.HostConfig, name: str) -> bool:
    """Tell whether other members have a part in a switch to `name` on this host."""
    if not host.clusters:
        return False
    if name == "none" or host.model(name).cluster:
        return True
    ranks = [model for model in host.models.values() if model.cluster]
    state = units.units_by_name(model.unit for model in ranks)
    return any(state[model.unit].up for model in ranks)


class Planner:
    """A planner of the switches requested on this host, which others know as `host_name`."""

    def __init__(
        self,
        host: config.HostConfig,
        switch_members: members.SwitchMembers,
        host_name: str,
        say: Callable[[str], None],
    ) -> None:
        self._host, self._switch_members, self._host_name, self._say = (
            host,
            switch_members,
            host_name,
            say,
        )

    def switch_plan(self, model: config.Model) -> Plan:
        """Return the wanted model of each member that takes part; raise Problem for a silent one.

        From then on, only these members are asked.
        """
        self._switch_members.limit_asked_members()
        wanted_clusters = [model.cluster] if model.cluster else []
        states = self._switch_members.states()
        member_names = self.members(wanted_clusters) or [self._host_name]
        known_states = {name: state for name, state in states.items() if name in member_names}
        running = members.running_clusters(known_states, self._host)
        plan = self._plan_without_models([*wanted_clusters, *running])
        for name in member_names:
            if name not in states:
                raise errors.Problem(f"{self._switch_members.silent[name]}; nothing was stopped")
            plan[name] = model.name
        self._switch_members.limit_asked_members(plan)
        self._refuse_foreign_clusters(plan, states)
        return plan

    def plan_to_stop_all(self) -> Plan:
        """Return this host and all members whose clusters end with `none` here; as `switch_plan`.

        Raises MemberUnreachable if this host's own agent does not answer.
        """
        self._switch_members.limit_asked_members()
        states = self._switch_members.states()
        if self._host_name not in states:
            raise member_client.MemberUnreachable(self._switch_members.silent[self._host_name])
        plan = self._plan_without_models(members.running_clusters(states, self._host))
        self._switch_members.limit_asked_members(plan)
        return plan

    def _plan_without_models(self, clusters: Iterable[str]) -> Plan:
        return dict.fromkeys([*self.members(clusters), self._host_name])

    def refuse_if_cluster_started(self, plan: Plan, states: Mapping[str, Answer]) -> None:
        """Raise Problem (75) if members of a plan, held still now, run a cluster with others."""
        running = members.running_clusters(states, self._host)
        if not plan.keys() >= set(self.members(running)):
            raise errors.Problem(
                f"cluster {', '.join(sorted(running))} was started meanwhile; nothing was stopped. "
                "Remedy: ask for the switch again",
                errors.EXIT_LOCKED,
            )

    def check_restart(self, name: str, states: Mapping[str, Answer]) -> None:
        """Raise Problem if somebody decided against the restart by this host's watch."""
        cluster = str(self._host.model(name).cluster)
        own_run = states.get(self._host_name, {"groups": {}})["groups"].get(cluster, {})
        if own_run.get("state") != run_records.RECOVERING:
            raise errors.Problem(
                f"{name} is not started again: {own_run.get('reason', 'it is over')}"
            )
        if decision := run_records.switch_off_reason(cluster, own_run["run"], states):
            raise errors.Problem(f"{name} is not started again; {decision}")

    def _refuse_foreign_clusters(self, plan: Plan, states: Mapping[str, Answer]) -> None:
        """Raise Problem if a member is part of a cluster that this host cannot end as a whole."""
        for name in plan:
            for cluster, cluster_run in states.get(name, {"groups": {}})["groups"].items():
                if cluster_run["state"] == run_records.HOT and cluster not in self._host.clusters:
                    raise errors.Problem(
                        f"{name} runs {cluster_run['model']} of cluster {cluster}, to which this "
                        f"host does not belong; nothing was stopped. Remedy: on {name}: switch.sh "
                        "none"
                    )

    def members(self, clusters: Iterable[str]) -> list[str]:
        """Return the members of these clusters, once each, in rank order."""
        cluster_members = (
            member for name in clusters for member in self._host.clusters[name].members
        )
        return list(dict.fromkeys(member.name for member in cluster_members))

    def is_up_on_all_members(self, model: config.Model, plan: Plan) -> bool:
        """Tell whether all members of the model's cluster have ranks of one same start up."""
        cluster = self._host.cluster_of_model(model.name)
        if cluster is None:
            return False
        states = self._switch_members.states()
        run_ids = set()
        for state in states.values():
            cluster_run = state["groups"].get(cluster.name, {})
            up = cluster_run.get("state") == state["states"].get(model.name) == run_records.HOT
            run_ids.add(cluster_run["run"] if up else None)
        return len(states) == len(plan) and len(run_ids) == 1 and None not in run_ids

    def check_generates(self, model: config.Model) -> bool:
        """Tell whether a model of a cluster generates, and report the answer."""
        first = self._host.clusters[str(model.cluster)].first_member.name
        try:
            answer = self._switch_members.ask(first, "token", {"model": model.name}, 45)
        except errors.Problem as problem:
            fault = f"{model.name} is up but does not serve ({problem}): restarting it"
            self._say(event_lines.EventLine("check", fault))
            return False
        self._say(event_lines.EventLine("done", f"{model.name} is hot already ({answer['said']})"))
        return True

    def check_launch(self, model: config.Model) -> None:
        """Run the launch check; raise Problem with everything in which the members differ."""
        cluster = self._host.cluster_of_model(model.name)
        if cluster is None:
            return
        bodies = {member.name: {"model": model.name} for member in cluster.members}
        member_facts = {}
        for name, answer in self._switch_members.ask_all("facts", bodies, timeout=60).items():
            if isinstance(answer, errors.Problem):
                raise answer
            member_facts[name] = answer["facts"]
        differences = launch_check.differences(member_facts)
        if differences:
            raise errors.Problem(
                f"the members of {cluster.name} differ; nothing was stopped. "
                f"{'; '.join(differences)}. Remedy: deploy to all of them, then lockstep diff"
            )

    def is_cluster_model(self, name: str) -> bool:
        """Tell whether a model belongs to a cluster."""
        return name in self._host.models and self._host.cluster_of_model(name) is not None

    def has_all_members(self, name: str, among: Mapping[str, str]) -> bool:
        """Tell whether all members that a model needs are among these, and answer."""
        if name not in self._host.models:
            return False
        cluster = self._host.cluster_of_model(name)
        needed_names = {member.name for member in cluster.members} if cluster else set()
        return needed_names <= among.keys() & set(self._switch_members.names)
