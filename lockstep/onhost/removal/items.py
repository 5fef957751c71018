"""The effects of `lockstep remove` on a host, as things by kind and name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

#: Parts that can be kept: models with their files, and data that people brought or were given.
WEIGHTS, DATA = "weights", "data"

#: Kind → what is done with its things, in this order: what starts others before what is started,
#: what needs a file before the file, and last the record by which a second run goes on.
KINDS = {
    "model": "is stopped",
    "unit": "is stopped",
    "container": "goes",
    "volume": "goes",
    "image": "goes",
    "firewall": "goes",
    "weights": "go",
    "file": "goes",
    "original": "returns",
    "package": "is purged",
    "mask": "goes",
    "setting": "returns",
    "member": "leaves",
    "account": "goes",
    "group": "goes",
    "content": "goes with all in it",
    "folder": "goes where it is empty then",
    "program": "goes last but one",
    "record": "goes last",
}


class RemovalItem(NamedTuple):
    """One thing that is removed, or restored to its earlier state.

    Attributes:
        kind: One of `KINDS`.
        name: Its path, unit, package …; unique among its kind.
        detail: Further data for its action: an image's note, a setting's value.
    """

    kind: str
    name: str
    detail: str = ""

    @property
    def identity(self) -> str:
        """Name of the item between the plan and its removal."""
        return f"{self.kind} {self.name}"


class StayingThing(NamedTuple):
    """One thing that stays, and why."""

    name: str
    why: str


@dataclass
class RemovalPlan:
    """The things to remove from one host, in the order of the actions, and those that stay.

    `unknown` has a sentence for each fact that cannot be known here.
    """

    goes: list[RemovalItem] = field(default_factory=list)
    stays: list[StayingThing] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def add_removals(self, kind: str, *names: str, detail: str = "") -> None:
        """Add things of one kind to remove."""
        self.goes += [RemovalItem(kind, name, detail) for name in names]

    def add_staying(self, name: str, why: str) -> None:
        """Add a thing that stays."""
        self.stays.append(StayingThing(name, why))

    def names_to_remove(self, kind: str) -> set[str]:
        """Return the names to remove of a kind."""
        return {item.name for item in self.goes if item.kind == kind}

    def in_action_order(self) -> RemovalPlan:
        """Return the same plan in the order of the actions."""
        order = list(KINDS)
        self.goes = sorted(dict.fromkeys(self.goes), key=lambda item: order.index(item.kind))
        return self
