"""Plots as inline SVG: bars with their spread, and a line over time. No script, no asset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, ROW, LEFT, RIGHT = 720, 30, 190, 110
_HEIGHT = 220


@dataclass(frozen=True)
class Bar:
    """One bar: mean, and the ends of its spread (equal to it where there was one sample)."""

    name: str
    mean: float
    low: float
    high: float


def bars(title: str, unit: str, values: Sequence[Bar]) -> str:
    """Horizontal bars from zero, each with a whisker from its lowest to its highest sample."""
    most = max((bar.high for bar in values), default=0.0) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / most
    rows = []
    for number, bar in enumerate(values):
        y = 34 + number * ROW
        low, high = LEFT + bar.low * scale, LEFT + bar.high * scale
        rows += [
            f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(bar.name)}</text>',
            f'<rect class="bar" x="{LEFT}" y="{y}" width="{bar.mean * scale:.1f}" height="20"/>',
            f'<path class="whisker" d="M{low:.1f} {y + 10}H{high:.1f}M{low:.1f} {y + 5}v10'
            f'M{high:.1f} {y + 5}v10"/>',
            f'<text x="{high + 8:.1f}" y="{y + 14}">{_number(bar.mean)} {escape(unit)}</text>',
        ]
    return _svg(title, 44 + len(values) * ROW, rows)


def line(title: str, unit: str, values: Sequence[Bar]) -> str:
    """One point per value in the order given, with its spread, from zero."""
    most = max((bar.high for bar in values), default=0.0) or 1.0
    step = (WIDTH - 90) / max(1, len(values))
    scale = (_HEIGHT - 80) / most
    points, marks = [], []
    for number, bar in enumerate(values):
        x, y = 60 + step * (number + 0.5), _HEIGHT - 40 - bar.mean * scale
        low, high = _HEIGHT - 40 - bar.low * scale, _HEIGHT - 40 - bar.high * scale
        points.append(f"{x:.1f},{y:.1f}")
        marks += [
            f'<path class="whisker" d="M{x:.1f} {low:.1f}V{high:.1f}"/>',
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>',
            f'<text x="{x:.1f}" y="{high - 6:.1f}" text-anchor="middle">{_number(bar.mean)}</text>',
            f'<text x="{x:.1f}" y="{_HEIGHT - 20}" text-anchor="middle">{escape(bar.name)}</text>',
        ]
    axis = f'<path class="axis" d="M50 {_HEIGHT - 40}H{WIDTH - 20}"/>'
    drawn = f'<polyline class="line" points="{" ".join(points)}"/>'
    return _svg(f"{title}, {unit}", _HEIGHT, [axis, drawn, *marks])


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
    return "\n".join(
        (head, f'<text class="title" x="0" y="16">{escape(title)}</text>', *parts, "</svg>")
    )


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
