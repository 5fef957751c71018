"""The client of the agents of a cluster's members."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lockstep.onhost.cluster import seal
from lockstep.onhost.core import errors, layout, topology
from lockstep.onhost.core.address import at

TIMEOUT_S = 5.0
MOST_BYTES = 1 << 20
#: Status of an answer that has a ticket, and nothing was done.
STALE = 428

#: What members say to each other: a question's body, or an answer.
Answer = dict[str, Any]
T = TypeVar("T")


class Unreachable(errors.Problem):
    """No agent answered, or not as one that has the key."""


class Refusal(errors.Problem):
    """The member's agent answered that it will not."""


@dataclass(frozen=True)
class Caller:
    """Asks members of one cluster.

    Attributes:
        tickets: Member → the newest ticket that it gave (`seal`).
    """

    cluster: topology.Cluster
    key: bytes
    tickets: dict[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, cluster: topology.Cluster, paths: layout.Paths) -> Caller:
        """With this host's key. Problem where it cannot be read."""
        return cls(cluster, seal.key(paths, cluster.name))

    def ask(
        self,
        member: topology.Member,
        verb: str,
        body: Answer | None = None,
        timeout: float = TIMEOUT_S,
    ) -> Answer:
        """One question. Unreachable, or Refusal with the member's reason and exit code."""
        data = json.dumps(body or {}).encode()
        status, answer = self._post(member, verb, data, timeout)
        if status == STALE:
            # Its agent is another process now, or was not asked for long.
            status, answer = self._post(member, verb, data, timeout)
        found: Answer = json.loads(answer)
        if status != 200:
            raise Refusal(f"{member.name}: {found['problem']}", int(found["code"]))
        return found

    def _post(
        self, member: topology.Member, verb: str, data: bytes, timeout: float
    ) -> tuple[int, bytes]:
        """Status and body of one sealed answer; its ticket is kept for the next question."""
        ticket = self.tickets.get(member.name, "")
        headers = seal.request(self.key, self.cluster.name, member.name, verb, data, ticket)
        # From the fabric's own address: the agents know each other by it.
        source, place = (self.cluster.me.address, 0), (member.address, self.cluster.port)
        connection = http.client.HTTPConnection(*place, timeout=timeout, source_address=source)
        try:
            connection.request("POST", f"/{self.cluster.name}/{verb}", data, headers)
            response = connection.getresponse()
            answer = response.read(MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(member, errors.why(error)) from error
        finally:
            connection.close()
        given, nonce = response.headers.get(seal.SEAL, ""), headers[seal.NONCE]
        ticket = response.headers.get(seal.TICKET, "")
        if not seal.fits(given, self.key, nonce, response.status, ticket, answer):
            why = "its answer has no seal of ours: its key is another one"
            raise self._silent(member, why)
        self.tickets[member.name] = ticket
        return response.status, answer

    def ask_all(
        self, members: Iterable[topology.Member], verb: str, body: Answer | None = None
    ) -> dict[str, Answer | errors.Problem]:
        """One question to several members at the same time; a Problem is kept as the answer."""
        named = {member.name: member for member in members}
        return at_once(lambda name: self.ask(named[name], verb, body, timeout=3.0), named)

    def _silent(self, member: topology.Member, why: str) -> Unreachable:
        where = at(member.address, self.cluster.port)
        return Unreachable(
            f"{member.name} ({where}) does not answer: {why}. "
            f"Remedy: on {member.name}: is its cable in? systemctl status lockstep-cluster; ping "
            "over the fabric"
        )


def at_once(work: Callable[[str], T], names: Iterable[str]) -> dict[str, T | errors.Problem]:
    """`work` on every name at the same time; a Problem is kept as what came of it."""

    def one(name: str) -> T | errors.Problem:
        try:
            return work(name)
        except errors.Problem as problem:
            return problem

    wanted = list(names)
    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        return dict(zip(wanted, pool.map(one, wanted), strict=True))
