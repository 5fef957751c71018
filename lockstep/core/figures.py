"""A number that somebody published; it never stands without its source and date."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, Literal, cast

from lockstep.core.reader import Reader, keys_of

Kind = Literal["measured", "quoted", "computed"]
KINDS: tuple[Kind, ...] = ("measured", "quoted", "computed")


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

    what: str
    value: float | str
    unit: str
    source: str
    date: str
    kind: Kind


def parse_figure(raw: Any, where: str, inside: str, *, what: str = "", unit: str = "") -> Figure:
    """One figure; ``what`` and ``unit`` are fixed by the caller where the key implies them.

    Raises:
        RecipeError: a missing value, source or date, or an unknown kind.
    """
    allowed = tuple(
        key
        for key in keys_of(Figure)
        if not (key == "what" and what) and not (key == "unit" and unit)
    )
    reader = Reader(raw, where, inside, allowed)
    value = reader.mapping.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float | str) or value == "":
        raise reader.fail("value", "a number" if unit else "a number or a text")
    if unit and (isinstance(value, str) or not 0 < value < float("inf")):
        raise reader.fail("value", f"a positive number of {unit}")
    kind = reader.choice("kind", KINDS)
    if kind is None:
        raise reader.fail("kind", "one of " + ", ".join(KINDS))
    date = cast(str, reader.text("date", required=True))
    try:
        datetime.date.fromisoformat(date)
    except ValueError as fault:
        raise reader.fail("date", "an ISO date such as 2026-05-22") from fault
    return Figure(
        what=what or cast(str, reader.text("what", required=True)),
        value=value,
        unit=unit or cast(str, reader.text("unit", required=True)),
        source=cast(str, reader.text("source", required=True)),
        date=date,
        kind=cast(Kind, kind),
    )
