"""One page of what was measured; what was not stands there without a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class NotMeasured(LookupError):
    """A figure was asked for that no measurement gave."""


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def figure(found: Mapping[str, Any], name: str, digits: int = 2) -> str:
    """A measured figure as text.

    Raises:
        NotMeasured: it is absent or None. A stage that ends early must not look like one that did
            not, so nothing stands in for it.
    """
    value = found.get(name)
    if value is None:
        raise NotMeasured(name)
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def row(found: Mapping[str, Any], names: Sequence[str], digits: int = 2) -> list[str]:
    """Figures of one row; "not measured" in the place of each that is absent."""
    cells = []
    for name in names:
        try:
            cells.append(figure(found, name, digits))
        except NotMeasured:
            cells.append("not measured")
    return cells
