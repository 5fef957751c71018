"""The client of the agents of a cluster's members."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from lockstep.onhost.access import peer_tls
from lockstep.onhost.core import address_text, errors, http_client, layout, topology

TIMEOUT_S = 5.0
MOST_BYTES = 1 << 20
#: Statuses of an agent's answers; any other one refuses without a word.
_ANSWERED = (200, 400, 409)

#: Messages between members: a question's body, or an answer.
Answer = dict[str, Any]
T = TypeVar("T")


class MemberUnreachable(errors.Problem):
    """The error that no agent answered, or none that proves to be the member's."""


class MemberRefusal(errors.Problem):
    """The refusal of a member's agent."""


@dataclass(frozen=True)
class MemberClient:
    """A client of the members of one cluster; `tls` is its own side."""

    cluster: topology.Cluster
    tls: ssl.SSLContext

    @classmethod
    def from_cluster(cls, cluster: topology.Cluster, paths: layout.Paths) -> MemberClient:
        """Make a client with this host's certificate; raise Problem if that cannot be read."""
        identity = peer_tls.identity_path(paths, peer_tls.AGENT, cluster.own_member.name)
        return cls(cluster, peer_tls.make_context(identity, is_server=False))

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
        # From the fabric's own address, by which the agents know each other.
        own = self.cluster.own_member.address
        where = address_text.url(member.address, self.cluster.port, "https")
        try:
            status, _, answer = http_client.ask(
                f"{where}/{self.cluster.name}/{verb}",
                timeout,
                "POST",
                json.dumps(body or {}).encode(),
                source=own,
                peer=peer_tls.expected_peer(self.tls, peer_tls.AGENT, member.name),
                most=MOST_BYTES,
            )
        except ssl.SSLError as error:
            why = f"{errors.why(error)}; deploy to every member if its authority is another one"
            raise self._unreachable_problem(member, why) from error
        except http_client.FAULTS as error:
            raise self._unreachable_problem(member, errors.why(error)) from error
        if status not in _ANSWERED:
            raise self._unreachable_problem(member, f"it answers {status}: deploy to every member")
        reply: Answer = json.loads(answer)
        if status != 200:
            raise MemberRefusal(f"{member.name}: {reply['problem']}", int(reply["code"]))
        return reply

    def ask_all(
        self, members: Iterable[topology.TopologyMember], verb: str, body: Answer | None = None
    ) -> dict[str, Answer | errors.Problem]:
        """Ask several members one question at the same time; a Problem is kept as the answer."""
        members_by_name = {member.name: member for member in members}
        return work_in_parallel(
            lambda name: self.ask(members_by_name[name], verb, body, timeout=3.0), members_by_name
        )

    def _unreachable_problem(self, member: topology.TopologyMember, why: str) -> MemberUnreachable:
        where = address_text.address_with_port(member.address, self.cluster.port)
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
