"""The members that one switch concerns, contacted through this host's clusters."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from lockstep.onhost.cluster import member_client, run_records
from lockstep.onhost.cluster.member_client import Answer
from lockstep.onhost.core import clock, config, errors, event_lines, layout, topology

#: Seconds without an answer after which a member counts as lost, and counts itself as alone.
LOST_S = 20.0
_EVERY_S = 0.5


class SwitchMembers:
    """Members by name; `switch` is the id under which they join."""

    def __init__(self, host: config.HostConfig, paths: layout.Paths, switch: str) -> None:
        self._all: dict[str, tuple[member_client.MemberClient, topology.TopologyMember]] = {}
        self._last_heard: dict[str, float] = {}
        self._read: dict[str, int] = {}
        self.switch = switch
        #: Reasons why members did not answer the last time; and members that are not asked any
        #: more.
        self.silent: dict[str, str] = {}
        self.lost_members: dict[str, str] = {}
        for cluster in host.clusters.values():
            caller = member_client.MemberClient.from_cluster(cluster, paths)
            for member in (cluster.own_member, *cluster.members):
                self._all.setdefault(member.name, (caller, member))
        self._chosen_members = dict(self._all)

    @property
    def names(self) -> list[str]:
        """All members that are not lost: this host, then the others in rank order."""
        return [name for name in self._chosen_members if name not in self.lost_members]

    def ask(self, name: str, verb: str, body: Answer | None = None, timeout: float = 5.0) -> Answer:
        """Send one question; raise errors as `MemberClient.ask` does."""
        caller, member = self._chosen_members[name]
        return caller.ask(member, verb, {"switch": self.switch, **(body or {})}, timeout)

    def ask_all(
        self, verb: str, bodies: Mapping[str, Answer], timeout: float = 5.0
    ) -> dict[str, Answer | errors.Problem]:
        """Send one question to each member at the same time; a Problem is kept as its answer."""
        return member_client.work_in_parallel(
            lambda name: self.ask(name, verb, bodies[name], timeout), bodies
        )

    def states(self) -> dict[str, Answer]:
        """Return the states of all members; a member that was silent for `LOST_S` is lost."""
        now = clock.now()
        bodies = {name: {"from": self._read.get(name, 0)} for name in self.names}
        answers = {}
        for name, answer in self.ask_all("state", bodies, timeout=3.0).items():
            if isinstance(answer, dict):
                self._last_heard[name] = now
                self.silent.pop(name, None)
                self._read[name] = self._read.get(name, 0) + len(answer["lines"])
                answers[name] = answer
            elif not isinstance(answer, member_client.MemberUnreachable):
                raise answer
            else:
                self.silent[name] = str(answer)
                if now - self._last_heard.setdefault(name, now) >= LOST_S:
                    self.lost_members[name] = str(answer)
        return answers

    def leave_out_member(self, name: str) -> None:
        """Send this member no more questions."""
        del self._chosen_members[name]

    def limit_asked_members(self, names: Container[str] | None = None) -> None:
        """Ask these members from now on; None means those of all clusters of this host."""
        everybody = self._all.items()
        self._chosen_members = {
            name: seat for name, seat in everybody if names is None or name in names
        }

    def execute_on_members(
        self,
        verb: str,
        bodies: Mapping[str, Answer],
        hear: Callable[[str, list[str]], None],
        together: bool = False,
    ) -> dict[str, str]:
        """Make members do something that takes long, all at the same time, until all have ended.

        `hear` gets a member's new lines. With `together`, one failure ends the waiting for the
        others. Returns the reasons of failures by member.
        """
        self._read.update(dict.fromkeys(bodies, 0))
        failures = {
            name: str(answer)
            for name, answer in self.ask_all(verb, bodies).items()
            if isinstance(answer, errors.Problem)
        }
        while not (failures and together):
            states = self.states()
            for name, state in states.items():
                hear(name, list(map(event_lines.read_event, state["lines"])))
            for name in bodies.keys() - failures.keys():
                if reason := self._failure_reason(name, states.get(name)):
                    failures[name] = reason
            going = [name for name in bodies if name not in failures]
            if not any(name not in states or states[name]["busy"] for name in going):
                break
            clock.sleep(_EVERY_S)
        return failures

    def _failure_reason(self, name: str, state: Answer | None) -> str:
        if state is None:
            return self.lost_members.get(name, "")
        if state["switch"] != self.switch:
            return "it left the switch: its agent was restarted, or heard nothing of this one"
        if state["ok"] is False and not state["busy"]:
            return str(state["problem"] or "failed")
        return "; ".join(state["why"])


def up_models(state: Answer) -> list[str]:
    """Return the models that are up on a member, by its state."""
    return [name for name, word in state["states"].items() if word not in ("off", "failed")]


def running_clusters(states: Mapping[str, Answer], host: config.HostConfig) -> set[str]:
    """Return the clusters of which a rank is up or will be started again, by members' states."""
    cluster_names: set[str | None] = set()
    for state in states.values():
        cluster_names |= {
            host.models[name].cluster for name in up_models(state) if name in host.models
        }
        again = (run_records.HOT, run_records.RECOVERING)
        cluster_names |= {
            name for name, cluster_run in state["groups"].items() if cluster_run["state"] in again
        }
    return host.clusters.keys() & cluster_names
