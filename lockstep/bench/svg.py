"""Plots as inline SVG: bars with their spread. No script, no asset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lockstep.bench.table import number

WIDTH, ROW, LEFT, RIGHT = 720, 30, 190, 110


def bars(title: str, unit: str, values: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Horizontal bars from zero, each with a whisker from its lowest to its highest sample.

    Args:
        title: Above them.
        unit: Beside each figure.
        values: Name and spread (`results.spread`) of each.
    """
    most = max((spread["high"] for _, spread in values), default=0.0) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / most
    rows = []
    for row, (name, spread) in enumerate(values):
        y, mean = 34 + row * ROW, spread["mean"]
        low, high = LEFT + spread["low"] * scale, LEFT + spread["high"] * scale
        rows += [
            f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="bar" x="{LEFT}" y="{y}" width="{mean * scale:.1f}" height="20"/>',
            f'<path class="whisker" d="M{low:.1f} {y + 10}H{high:.1f}M{low:.1f} {y + 5}v10'
            f'M{high:.1f} {y + 5}v10"/>',
            f'<text x="{high + 8:.1f}" y="{y + 14}">{number(mean)} {escape(unit)}</text>',
        ]
    size = f"0 0 {WIDTH} {44 + len(values) * ROW}"
    return "\n".join(
        (
            f'<svg viewBox="{size}" role="img" aria-label="{escape(title)}">',
            f'<text class="title" x="0" y="16">{escape(title)}</text>',
            *rows,
            "</svg>",
        )
    )
