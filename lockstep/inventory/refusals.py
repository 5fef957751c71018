"""Contradictions in an inventory: each check yields its faults, and all are raised together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from lockstep.core.errors import InventoryError, LockstepError, gather_faults, raise_all
from lockstep.onhost.core.schema import SchemaFault

Refusals: TypeAlias = Iterator[SchemaFault]


def refuse(refusals: Iterable[SchemaFault], where: str) -> None:
    """Raise refusals as InventoryErrors; checks that need a wrong value yield nothing."""
    faults: list[LockstepError] = []
    with gather_faults(faults):
        for summary, found_text, allowed_text, remedy in refusals:
            details = {"found": found_text, "allowed": allowed_text, "remedy": remedy}
            faults.append(InventoryError(summary, where=where, **details))
    raise_all(faults)
