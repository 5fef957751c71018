"""Keys that several hosts of an inventory have alike: made on the first, carried to the others."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.files.managed_file import AGENT_UNIT, command
from lockstep.inventory.host import HostPlan
from lockstep.units.agent_unit import key_path


@dataclass(frozen=True)
class SharedKey:
    """One such key.

    Attributes:
        what: "key of cluster pair".
        path: Where each host has it, for root alone.
        hosts: Who has it, as the inventory names them; the first one makes it.
        make: What makes it, once.
        take: What writes what comes on standard input instead.
        units: Those that read it when they start.
    """

    what: str
    path: str
    hosts: tuple[str, ...]
    make: tuple[str, ...]
    take: tuple[str, ...]
    units: tuple[str, ...]


def shared_keys(plan: HostPlan) -> tuple[SharedKey, ...]:
    """The keys that a host has in common with others."""
    return tuple(
        SharedKey(
            f"key of cluster {group.name}",
            key_path(group.name),
            tuple(member.name for member in group.members),
            command("make-secrets", key_path(group.name)),
            command("make-secrets", "--take", key_path(group.name)),
            (AGENT_UNIT,),
        )
        for group in plan.groups
    )
