"""What `lockstep remove` would do on a host, as things by kind and name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

#: What can be kept: models with their files, and what people brought or were given.
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


class Item(NamedTuple):
    """One thing that goes, or returns to what it was.

    Attributes:
        kind: One of `KINDS`.
        name: Its path, unit, package …; unique among its kind.
        detail: What its action needs besides: an image's note, a setting's value.
    """

    kind: str
    name: str
    detail: str = ""

    @property
    def identity(self) -> str:
        """How it is named between the plan and its removal."""
        return f"{self.kind} {self.name}"


class Stays(NamedTuple):
    """One thing that stays, and why."""

    what: str
    why: str


@dataclass
class Plan:
    """What goes from one host, in the order of its actions, and what stays.

    `unknown` is what cannot be known here, a sentence each.
    """

    goes: list[Item] = field(default_factory=list)
    stays: list[Stays] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def go(self, kind: str, *names: str, detail: str = "") -> None:
        """Add things of one kind."""
        self.goes += [Item(kind, name, detail) for name in names]

    def stay(self, what: str, why: str) -> None:
        """Add one that stays."""
        self.stays.append(Stays(what, why))

    def names(self, kind: str) -> set[str]:
        """What goes of a kind."""
        return {item.name for item in self.goes if item.kind == kind}

    def ordered(self) -> Plan:
        """The same in the order of the actions."""
        order = list(KINDS)
        self.goes = sorted(dict.fromkeys(self.goes), key=lambda item: order.index(item.kind))
        return self
