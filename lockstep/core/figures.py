"""A published number, always with its source and date."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Annotated, Literal

from lockstep.onhost.core.schema import Refusal, Rule

Kind = Literal["measured", "quoted", "computed"]
Text = Annotated[str, Rule("is empty", str.strip)]
Date = Annotated[
    str, Rule("is not a day", datetime.date.fromisoformat, "an ISO date such as 2026-05-22")
]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number somebody published about a recipe.

    Attributes:
        what: What was observed ("decode, one stream").
        value: The number; a published range is kept as its text ("57-62").
        unit: Its unit ("tok/s", "GiB", "s").
        source: Who published it, precise enough to find it again.
        date: ISO date of the observation or publication; where neither is known, of the reading.
        kind: "measured" by whoever wrote the recipe, "quoted" from the source, or "computed"
            (then the source says from what).
    """

    what: Text
    value: int | float | Text
    unit: Text
    source: Text
    date: Date
    kind: Kind


def positive(figure: Figure) -> Refusal | None:
    """Why a figure is refused that has to be a number of something; None for a good one."""
    if isinstance(figure.value, int | float) and 0 < figure.value < float("inf"):
        return None
    return Refusal(f"must be a positive number of {figure.unit}", repr(figure.value)[:60])
