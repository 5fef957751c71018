"""Contradictions in an inventory: each check yields what is wrong, and all of it is raised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from lockstep.core.errors import InventoryError, LockstepError, gather_faults, raise_all
from lockstep.onhost.core.schema import Refusal

Refusals: TypeAlias = Iterator[Refusal]


def refuse(refusals: Iterable[Refusal], where: str) -> None:
    """Raise them as InventoryErrors; what comes after a value that is wrong itself is not known."""
    faults: list[LockstepError] = []
    with gather_faults(faults):
        for what, found, allowed, remedy in refusals:
            said = {"found": found, "allowed": allowed, "remedy": remedy}
            faults.append(InventoryError(what, where=where, **said))
    raise_all(faults)
