"""Contradictions in an inventory: each check yields what is wrong, and the first is raised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from lockstep.core.errors import InventoryError
from lockstep.onhost.core.schema import Refusal

Refusals: TypeAlias = Iterator[Refusal]


def refuse(refusals: Iterable[Refusal], where: str) -> None:
    """Raise the first of them as an InventoryError; a check after it is not made."""
    for what, found, allowed, remedy in refusals:
        raise InventoryError(what, where=where, found=found, allowed=allowed, remedy=remedy)
