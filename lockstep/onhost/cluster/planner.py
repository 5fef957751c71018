"""Decides which Sparks take part in a switch, and whether it may begin; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lockstep.onhost.cluster import launch_check, members, runs, wire_client
from lockstep.onhost.cluster.wire_client import Answer
from lockstep.onhost.core import config, errors
from lockstep.onhost.systemd import units

#: Member → target that is to be hot there, None for no model.
Plan = dict[str, str | None]


def concerns(host: config.Host, name: str) -> bool:
    """Whether other members have a part in a switch to `name` on this host."""
    if not host.clusters:
        return False
    if name == "none" or host.target(name).cluster:
        return True
    ranks = [target for target in host.targets.values() if target.cluster]
    state = units.show(target.unit for target in ranks)
    return any(state[target.unit].up for target in ranks)


class Planner:
    """Plans the switches that are asked for on this host, which is `here` to the others."""

    def __init__(
        self, host: config.Host, crew: members.Crew, here: str, say: Callable[[str], None]
    ) -> None:
        self._host, self._crew, self._here, self._say = host, crew, here, say

    def concerned(self, target: config.Target) -> Plan:
        """What each member that has a part in it is to have; Problem where one does not answer.

        Nobody else is asked any more from then on.
        """
        self._crew.seat()
        wanted = [target.cluster] if target.cluster else []
        states = self._crew.states()
        asked = self.members(wanted) or [self._here]
        known = {name: state for name, state in states.items() if name in asked}
        running = members.running(known, self._host)
        plan = self._none_hot([*wanted, *running])
        for name in asked:
            if name not in states:
                raise errors.Problem(f"{self._crew.silent[name]}; nothing was stopped")
            plan[name] = target.name
        self._crew.seat(plan)
        self._no_strangers(plan, states)
        return plan

    def ending(self) -> Plan:
        """Everybody whose groups end with `none` on this host, and this host; as `concerned`.

        Unreachable when this host's own agent does not answer.
        """
        self._crew.seat()
        states = self._crew.states()
        if self._here not in states:
            raise wire_client.Unreachable(self._crew.silent[self._here])
        plan = self._none_hot(members.running(states, self._host))
        self._crew.seat(plan)
        return plan

    def _none_hot(self, clusters: Iterable[str]) -> Plan:
        return dict.fromkeys([*self.members(clusters), self._here])

    def still(self, plan: Plan, states: Mapping[str, Answer]) -> None:
        """Locked where the members of a plan, who hold still now, run a group with others."""
        running = members.running(states, self._host)
        if not plan.keys() >= set(self.members(running)):
            raise errors.Problem(
                f"cluster {', '.join(sorted(running))} was started meanwhile; nothing was stopped. "
                "Remedy: ask for the switch again",
                errors.EXIT_LOCKED,
            )

    def owed(self, name: str, states: Mapping[str, Answer]) -> None:
        """Problem where somebody decided otherwise about what this host's watch starts again."""
        cluster = str(self._host.target(name).cluster)
        mine = states.get(self._here, {"groups": {}})["groups"].get(cluster, {})
        if mine.get("state") != runs.RECOVERING:
            raise errors.Problem(f"{name} is not started again: {mine.get('reason', 'it is over')}")
        if decided := runs.switched_off(cluster, mine["run"], states):
            raise errors.Problem(f"{name} is not started again; {decided}")

    def _no_strangers(self, plan: Plan, states: Mapping[str, Answer]) -> None:
        """Problem where a member is part of a group that this host cannot end as a whole."""
        for name in plan:
            for cluster, group in states.get(name, {"groups": {}})["groups"].items():
                if group["state"] == runs.HOT and cluster not in self._host.clusters:
                    raise errors.Problem(
                        f"{name} runs {group['target']} of cluster {cluster}, to which this host "
                        f"does not belong; nothing was stopped. Remedy: on {name}: switch.sh none"
                    )

    def members(self, clusters: Iterable[str]) -> list[str]:
        """Members of these clusters, once each, in rank order."""
        found = (member for name in clusters for member in self._host.clusters[name].members)
        return list(dict.fromkeys(member.name for member in found))

    def up_everywhere(self, target: config.Target, plan: Plan) -> bool:
        """Whether all members of its cluster have their ranks of one and the same start up."""
        cluster = self._host.cluster(target.name)
        if cluster is None:
            return False
        states = self._crew.states()
        found = set()
        for state in states.values():
            group = state["groups"].get(cluster.name, {})
            up = group.get("state") == state["states"].get(target.name) == runs.HOT
            found.add(group["run"] if up else None)
        return len(states) == len(plan) and len(found) == 1 and None not in found

    def serves(self, target: config.Target) -> bool:
        """Whether a target of a cluster generates; says either."""
        first = self._host.clusters[str(target.cluster)].first.name
        try:
            said = self._crew.ask(first, "token", {"target": target.name}, 45)
        except errors.Problem as problem:
            self._say(f"{target.name} is up but does not serve ({problem}): restarting it")
            return False
        self._say(f"{target.name} is hot already ({said['said']})")
        return True

    def check_launch(self, target: config.Target) -> None:
        """The launch check: Problem names everything in which the members differ."""
        cluster = self._host.cluster(target.name)
        if cluster is None:
            return
        bodies = {member.name: {"target": target.name} for member in cluster.members}
        found = {}
        for name, answer in self._crew.ask_all("facts", bodies, timeout=60).items():
            if isinstance(answer, errors.Problem):
                raise answer
            found[name] = answer["facts"]
        said = launch_check.differences(found)
        if said:
            raise errors.Problem(
                f"the members of {cluster.name} differ; nothing was stopped. "
                f"{'; '.join(said)}. Remedy: deploy to all of them, then lockstep diff"
            )

    def is_group(self, name: str) -> bool:
        """Whether a target is one of a cluster."""
        return name in self._host.targets and self._host.cluster(name) is not None

    def whole(self, name: str, among: Mapping[str, str]) -> bool:
        """Whether all that a target needs are among these members, and answer."""
        if name not in self._host.targets:
            return False
        cluster = self._host.cluster(name)
        needed = {member.name for member in cluster.members} if cluster else set()
        return needed <= among.keys() & set(self._crew.names)
