"""Clusters as this host knows them: the members of each in rank order, and its own rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TopologyMember:
    """One Spark of a cluster: its name in the inventory, and its address on the fabric."""

    name: str
    address: str


@dataclass(frozen=True)
class Cluster:
    """Sparks that run one model together.

    `rank` is this host's rank, `port` the port of the agents. `links` are this host's network
    interfaces of the fast link, each with its RDMA device or "".
    """

    name: str
    rank: int
    port: int
    members: tuple[TopologyMember, ...]
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def own_member(self) -> TopologyMember:
        """The member for this host."""
        return self.members[self.rank]

    @property
    def first_member(self) -> TopologyMember:
        """The member of rank 0, which answers clients and watches over the others."""
        return self.members[0]

    @property
    def other_members(self) -> tuple[TopologyMember, ...]:
        """Every member but this host."""
        return tuple(member for member in self.members if member is not self.own_member)
