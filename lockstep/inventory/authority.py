"""The authority that signs the gateways' certificates of an inventory, where `tls` is "own"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.core.digest import digest
from lockstep.inventory.values import is_address
from lockstep.onhost.access.authority import SUFFIXES


@dataclass(frozen=True)
class Authority:
    """What the hosts with it have in common.

    Attributes:
        hosts: Those hosts, as the inventory names and lists them; the first one makes it.
        names: Names of theirs that are not private by themselves: it signs for these too.
    """

    hosts: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def id(self) -> str:
        """Another one where it is to sign for other names."""
        return digest(self.names, 8)


def authority(named: Sequence[tuple[str, Sequence[str]]]) -> Authority:
    """The authority of some hosts, each with the names of its certificate."""
    every = {name for _, names in named for name in names if not _private(name)}
    return Authority(tuple(host for host, _ in named), tuple(sorted(every)))


def _private(name: str) -> bool:
    return name.endswith(tuple(f".{suffix}" for suffix in SUFFIXES)) or is_address(name)
