"""Clusters as this host knows them: the members of each in rank order, and which one it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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

    def member(self, name: str) -> Member:
        """The member of that name; KeyError for a stranger."""
        return {member.name: member for member in self.members}[name]


def parse(data: Any) -> dict[str, Cluster]:
    """`clusters` of targets.json; ValueError names cluster and key."""
    if not isinstance(data, dict):
        raise ValueError(f'key "clusters": expected an object, found {data!r}')
    return {name: _cluster(name, entry) for name, entry in data.items()}


def _cluster(name: str, entry: Any) -> Cluster:
    if not isinstance(entry, dict):
        raise ValueError(f"cluster {name}: expected an object, found {entry!r}")
    for key, kind in (("rank", int), ("port", int), ("members", list)):
        if not isinstance(entry.get(key), kind) or isinstance(entry[key], bool):
            raise ValueError(f'cluster {name}, key "{key}": found {entry.get(key)!r}')
    members = tuple(_member(name, member) for member in entry["members"])
    if not 0 <= entry["rank"] < len(members):
        raise ValueError(
            f'cluster {name}, key "rank": expected 0 to {len(members) - 1}, found {entry["rank"]}'
        )
    links = entry.get("links", {})
    if not isinstance(links, dict) or not all(isinstance(each, str) for each in links.values()):
        raise ValueError(f'cluster {name}, key "links": found {links!r}')
    return Cluster(name, entry["rank"], entry["port"], members, links)


def _member(cluster: str, entry: Any) -> Member:
    try:
        return Member(str(entry["name"]), str(entry["address"]))
    except (TypeError, LookupError):
        raise ValueError(
            f'cluster {cluster}, key "members": expected name and address, found {entry!r}'
        ) from None
