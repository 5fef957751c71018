"""The members that one switch concerns, contacted through this host's clusters."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from lockstep.onhost.cluster import runs, wire_client
from lockstep.onhost.cluster.wire_client import Answer
from lockstep.onhost.core import clock, config, errors, layout, topology

#: A member is taken for lost when it has not answered for so long, as it takes itself for alone.
LOST_S = 20.0
_EVERY_S = 0.5


class Crew:
    """Members by name; `switch` is the id that they join under."""

    def __init__(self, host: config.Host, paths: layout.Paths, switch: str) -> None:
        self._all: dict[str, tuple[wire_client.Caller, topology.Member]] = {}
        self._heard: dict[str, float] = {}
        self._read: dict[str, int] = {}
        self.switch = switch
        #: Why a member did not answer the last time; and who will not be asked any more.
        self.silent: dict[str, str] = {}
        self.lost: dict[str, str] = {}
        for cluster in host.clusters.values():
            caller = wire_client.Caller.of(cluster, paths)
            for member in (cluster.me, *cluster.members):
                self._all.setdefault(member.name, (caller, member))
        self._seats = dict(self._all)

    @property
    def names(self) -> list[str]:
        """Everybody who is not lost: this host, then the others in rank order."""
        return [name for name in self._seats if name not in self.lost]

    def ask(self, name: str, verb: str, body: Answer | None = None, timeout: float = 5.0) -> Answer:
        """One question; raises as `Caller.ask` does."""
        caller, member = self._seats[name]
        return caller.ask(member, verb, {"switch": self.switch, **(body or {})}, timeout)

    def ask_all(
        self, verb: str, bodies: Mapping[str, Answer], timeout: float = 5.0
    ) -> dict[str, Answer | errors.Problem]:
        """One question to each of them at the same time; a Problem is kept as its answer."""
        return wire_client.at_once(lambda name: self.ask(name, verb, bodies[name], timeout), bodies)

    def states(self) -> dict[str, Answer]:
        """What everybody says now; who has not answered for `LOST_S` is lost."""
        now = clock.now()
        bodies = {name: {"from": self._read.get(name, 0)} for name in self.names}
        found = {}
        for name, answer in self.ask_all("state", bodies, timeout=3.0).items():
            if isinstance(answer, dict):
                self._heard[name] = now
                self.silent.pop(name, None)
                self._read[name] = self._read.get(name, 0) + len(answer["lines"])
                found[name] = answer
            elif not isinstance(answer, wire_client.Unreachable):
                raise answer
            else:
                self.silent[name] = str(answer)
                if now - self._heard.setdefault(name, now) >= LOST_S:
                    self.lost[name] = str(answer)
        return found

    def leave_out(self, name: str) -> None:
        """Ask this member nothing more."""
        del self._seats[name]

    def seat(self, names: Container[str] | None = None) -> None:
        """Ask these members from now on; None: those of all clusters of this host."""
        everybody = self._all.items()
        self._seats = {name: seat for name, seat in everybody if names is None or name in names}

    def do(
        self,
        verb: str,
        bodies: Mapping[str, Answer],
        hear: Callable[[str, list[str]], None],
        together: bool = False,
    ) -> dict[str, str]:
        """Have members do something that takes long, all at the same time, until all have ended.

        `hear` gets a member's new lines. `together`: one failure ends the waiting for the others.
        Returns why a member failed, by member.
        """
        self._read.update(dict.fromkeys(bodies, 0))
        failed = {
            name: str(answer)
            for name, answer in self.ask_all(verb, bodies).items()
            if isinstance(answer, errors.Problem)
        }
        while not (failed and together):
            found = self.states()
            for name, state in found.items():
                hear(name, state["lines"])
            for name in bodies.keys() - failed.keys():
                if reason := self._failure(name, found.get(name)):
                    failed[name] = reason
            going = [name for name in bodies if name not in failed]
            if not any(name not in found or found[name]["busy"] for name in going):
                break
            clock.sleep(_EVERY_S)
        return failed

    def _failure(self, name: str, state: Answer | None) -> str:
        if state is None:
            return self.lost.get(name, "")
        if state["switch"] != self.switch:
            return "it left the switch: its agent was restarted, or heard nothing of this one"
        if state["ok"] is False and not state["busy"]:
            return str(state["problem"] or "failed")
        return "; ".join(state["why"])


def up(state: Answer) -> list[str]:
    """Targets that are up on a member, by its state."""
    return [name for name, word in state["states"].items() if word not in ("off", "failed")]


def running(states: Mapping[str, Answer], host: config.Host) -> set[str]:
    """Clusters of which a rank is up, or that are to be started again, as members say."""
    found: set[str | None] = set()
    for state in states.values():
        found |= {host.targets[name].cluster for name in up(state) if name in host.targets}
        again = (runs.HOT, runs.RECOVERING)
        found |= {name for name, group in state["groups"].items() if group["state"] in again}
    return host.clusters.keys() & found
