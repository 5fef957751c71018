"""A published number, always with its source and date."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Annotated, Literal

from lockstep.onhost.core.schema import Rule, SchemaFault

Kind = Literal["measured", "quoted", "computed"]
Text = Annotated[str, Rule("is empty", str.strip)]
Date = Annotated[
    str, Rule("is not a day", datetime.date.fromisoformat, "an ISO date such as 2026-05-22")
]


@dataclass(frozen=True, slots=True)
class Figure:
    """One published number about a recipe.

    Attributes:
        quantity: The observed property ("decode, one stream").
        value: The number; a published range is kept as its text ("57-62").
        unit: Its unit ("tok/s", "GiB", "s").
        source: The publisher, precise enough to find it again.
        date: ISO date of the observation or publication; of the reading if neither is known.
        kind: "measured" by the recipe's author, "quoted" from the source, or "computed" (then the
            source names the inputs).
    """

    quantity: Text
    value: int | float | Text
    unit: Text
    source: Text
    date: Date
    kind: Kind


def positive(figure: Figure) -> SchemaFault | None:
    """Return why a figure is not a positive number; None for a good one."""
    if isinstance(figure.value, int | float) and 0 < figure.value < float("inf"):
        return None
    return SchemaFault(f"must be a positive number of {figure.unit}", repr(figure.value)[:60])
