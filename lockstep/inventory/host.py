"""One host of an inventory, with its data and its targets."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.inventory.bound_targets import BoundTarget
from lockstep.inventory.cluster import Group
from lockstep.inventory.settings import Settings


@dataclass(frozen=True)
class HostPlan:
    """One host, its data and its targets.

    Attributes:
        name: As pyinfra names it.
        settings: Its data, checked.
        targets: Its targets with their recipes.
    """

    name: str
    settings: Settings
    targets: tuple[BoundTarget, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """Its part of each cluster that serves one of its targets."""
        found = (target.group for target in self.targets if target.group)
        return tuple({group.name: group for group in found}.values())
