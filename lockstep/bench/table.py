"""A run on the terminal in 80 columns: its figures, and suspect suites with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from lockstep.bench.results import Result, SuiteResult
from lockstep.core.terminal import console, print_indented


def print_result(result: Result) -> None:
    """Print each suite's figures or why it has none, and the checks that are not "ok"."""
    about = result.subject
    parts = (about.host, about.model, about.served_name, about.engine, about.version)
    console().print(" · ".join(str(part) for part in parts if part), style="bold")
    for suite in result.suites:
        _print_suite(suite)


def _print_suite(suite: SuiteResult) -> None:
    style = {"measured": "green", "suspect": "bold red"}.get(suite.verdict, "yellow")
    console().print(f"\n{suite.name}: {suite.verdict}", style=style)
    if suite.refusal:
        print_indented(f"the engine says: {suite.refusal}"[:400])
    table = Table(box=None, pad_edge=False, padding=(0, 2), show_header=False)
    for name, value in rows(suite.summary):
        table.add_row(f"  {name}", value)
    if table.row_count:
        console().print(table)
    for note in suite.notes:
        print_indented(note)
    for check in suite.checks:
        if check.verdict in ("suspect", "waived"):
            print_indented(f"{check.verdict} {check.name}: {check.detail}")
    if unread := [check.name for check in suite.checks if check.verdict == "unread"]:
        print_indented(f"not readable here: {', '.join(unread)}")


def rows(summary: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and value of every figure; a spread stays a spread."""
    for key, value in summary.items():
        name = short(f"{prefix}{key}")
        if isinstance(value, Mapping) and "samples" in value:
            yield name, spread_text(value)
        elif isinstance(value, Mapping):
            yield from rows(value, f"{name} ")
        elif value is not None:
            yield name, f"{value:.3g}" if isinstance(value, float) else str(value)


def short(name: str) -> str:
    """Return a figure's name without the words that name its grouping."""
    return " ".join(word for word in name.split() if not word.startswith("by_"))


def spread_text(value: Mapping[str, Any]) -> str:
    """Return a spread as "71.5 (65.5 to 77.8, 3 runs)"."""
    ends = f"{number(value['low'])} to {number(value['high'])}"
    return f"{number(value['mean'])} ({ends}, {len(value['samples'])} runs)"


def number(value: float) -> str:
    """Return a number with three significant digits or more, without an exponent."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
