"""The client of the agents of a cluster's members."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lockstep.onhost.cluster import sealed_messages
from lockstep.onhost.core import address, errors, http_client, layout, topology

TIMEOUT_S = 5.0
MOST_BYTES = 1 << 20
#: Status of an answer that only brings a new ticket; nothing was done.
STALE = 428

#: Messages between members: a question's body, or an answer.
Answer = dict[str, Any]
T = TypeVar("T")


class MemberUnreachable(errors.Problem):
    """The error that no agent answered, or none that has the key."""


class MemberRefusal(errors.Problem):
    """The refusal of a member's agent."""


@dataclass(frozen=True)
class MemberClient:
    """A client of the members of one cluster.

    Attributes:
        tickets: Member → the newest ticket that it gave (`sealed_messages`).
    """

    cluster: topology.Cluster
    key: bytes
    tickets: dict[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, cluster: topology.Cluster, paths: layout.Paths) -> MemberClient:
        """Make a client with this host's key; raise Problem if the key cannot be read."""
        return cls(cluster, sealed_messages.key(paths, cluster.name))

    def ask(
        self,
        member: topology.TopologyMember,
        verb: str,
        body: Answer | None = None,
        timeout: float = TIMEOUT_S,
    ) -> Answer:
        """Ask one question.

        Raises MemberUnreachable, or MemberRefusal with the member's reason and exit code.
        """
        data = json.dumps(body or {}).encode()
        status, answer = self._post(member, verb, data, timeout)
        if status == STALE:
            # Its agent is another process now, or got no question for long.
            status, answer = self._post(member, verb, data, timeout)
        reply: Answer = json.loads(answer)
        if status != 200:
            raise MemberRefusal(f"{member.name}: {reply['problem']}", int(reply["code"]))
        return reply

    def _post(
        self, member: topology.TopologyMember, verb: str, data: bytes, timeout: float
    ) -> tuple[int, bytes]:
        """Return status and body of one sealed answer; keep its ticket for the next question."""
        ticket = self.tickets.get(member.name, "")
        headers = sealed_messages.sealed_request_headers(
            self.key, self.cluster.name, member.name, verb, data, ticket
        )
        # From the fabric's own address, by which the agents know each other.
        own = self.cluster.own_member.address
        url = f"{address.url(member.address, self.cluster.port)}/{self.cluster.name}/{verb}"
        try:
            status, answer_headers, answer = http_client.ask(
                url, timeout, "POST", data, headers, source=own, most=MOST_BYTES
            )
        except http_client.FAULTS as error:
            raise self._silent(member, errors.why(error)) from error
        nonce, seal = headers[sealed_messages.NONCE], answer_headers.get(sealed_messages.SEAL, "")
        ticket = answer_headers.get(sealed_messages.TICKET, "")
        if not sealed_messages.is_answer_seal(seal, self.key, nonce, status, ticket, answer):
            why = "its answer has no seal of ours: its key is another one"
            raise self._silent(member, why)
        self.tickets[member.name] = ticket
        return status, answer

    def ask_all(
        self, members: Iterable[topology.TopologyMember], verb: str, body: Answer | None = None
    ) -> dict[str, Answer | errors.Problem]:
        """Ask several members one question at the same time; a Problem is kept as the answer."""
        members_by_name = {member.name: member for member in members}
        return work_in_parallel(
            lambda name: self.ask(members_by_name[name], verb, body, timeout=3.0), members_by_name
        )

    def _silent(self, member: topology.TopologyMember, why: str) -> MemberUnreachable:
        where = address.address_with_port(member.address, self.cluster.port)
        return MemberUnreachable(
            f"{member.name} ({where}) does not answer: {why}. "
            f"Remedy: on {member.name}: is its cable in? systemctl status lockstep-cluster; ping "
            "over the fabric"
        )


def work_in_parallel(
    work: Callable[[str], T], names: Iterable[str]
) -> dict[str, T | errors.Problem]:
    """Do `work` for every name at the same time; a Problem is kept as its result."""

    def try_work(name: str) -> T | errors.Problem:
        try:
            return work(name)
        except errors.Problem as problem:
            return problem

    all_names = list(names)
    with ThreadPoolExecutor(max(1, len(all_names))) as pool:
        return dict(zip(all_names, pool.map(try_work, all_names), strict=True))
