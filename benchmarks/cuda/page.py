"""One page with the measured figures; a missing figure is named as such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class MissingFigure(LookupError):
    """A figure is needed that no measurement gave."""


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def figure(figures: Mapping[str, Any], name: str, digits: int = 2) -> str:
    """A measured figure as text.

    Raises:
        MissingFigure: the figure is absent or None. A stage that ends early must not look like a
            complete one, so no other value takes its place.
    """
    value = figures.get(name)
    if value is None:
        raise MissingFigure(name)
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def row(figures: Mapping[str, Any], names: Sequence[str], digits: int = 2) -> list[str]:
    """Figures of one row; "not measured" in the place of each that is absent."""
    cells = []
    for name in names:
        try:
            cells.append(figure(figures, name, digits))
        except MissingFigure:
            cells.append("not measured")
    return cells
