"""Clusters as this host knows them: the members of each in rank order, and which one it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Member:
    """One Spark of a cluster: its name in the inventory, its address on the fabric."""

    name: str
    address: str


@dataclass(frozen=True)
class Cluster:
    """Sparks that run one model together; `rank` is this host's, `port` the agents'.

    `links` are this host's network interfaces of the fast link, each with its RDMA device or "".
    """

    name: str
    rank: int
    port: int
    members: tuple[Member, ...]
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def me(self) -> Member:
        """This host."""
        return self.members[self.rank]

    @property
    def first(self) -> Member:
        """Rank 0, which answers clients and watches over the others."""
        return self.members[0]

    @property
    def others(self) -> tuple[Member, ...]:
        """Every member but this host."""
        return tuple(member for member in self.members if member is not self.me)
