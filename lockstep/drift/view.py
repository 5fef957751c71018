"""A diff on a terminal: a table by severity, and commands for the repairs by hand."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lockstep.drift.compare import Difference, fixable, shown
from lockstep.drift.report import Report

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def summary(report: Report) -> str:
    """One sentence: how much differs, on how many hosts."""
    hosts = f"{len(report.hosts)} host{'s' if len(report.hosts) != 1 else ''}"
    counted = Counter(item.severity for item in report.differences)
    parts = [
        f"{number} {word}{'s' if number != 1 else ''}"
        for word in ("error", "warning", "note")
        if (number := counted[word])
    ]
    if parts:
        return f"{', '.join(parts)} on {hosts}."
    if report.unknown:
        return f"Could not tell whether {hosts} are the same."
    alike = " and as each other" if len(report.hosts) > 1 else ""
    return f"No drift: {hosts} as inventory and record ask{alike}."


def table(report: Report, console: Console, fix: Sequence[str]) -> None:
    """Print the report, with the command that puts right what a deploy can."""
    width = min(console.width, 100)
    if report.differences:
        console.print(_rows(report.differences), width=width)
        console.print()
    for host, why in report.unknown:
        line = Text.assemble((host, "bold"), ": could not tell: ", why)
        console.print(line, width=width)
    console.print(Text(summary(report), style="bold"))
    deploy = fixable(report.differences)
    if deploy:
        console.print(f"{len(deploy)} of them a deploy puts right:")
        _commands([" ".join(fix)], console, width)
    for host, commands in by_hand(report.differences).items():
        console.print(Text.assemble("By hand, on ", (host, "bold"), ":"))
        _commands(commands, console, width)


def by_hand(differences: Iterable[Difference]) -> Mapping[str, list[str]]:
    """Host → what to type there, each once."""
    found: dict[str, dict[str, None]] = {}
    for item in differences:
        if item.command:
            found.setdefault(item.host, {})[item.command] = None
    return {host: list(commands) for host, commands in found.items()}


def _rows(differences: Iterable[Difference]) -> RenderableType:
    grid = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold", expand=True)
    grid.add_column("", no_wrap=True)
    grid.add_column("host", overflow="fold", max_width=14)
    grid.add_column("what differs", overflow="fold", ratio=1)
    grid.add_column("remedy", no_wrap=True)
    for item in differences:
        subject, expected, found = shown(item)
        what = Group(
            Text.assemble(f"{item.kind} ", (subject, "bold")),
            Text(f"expected {expected}, found {found}", style="dim"),
        )
        severity = Text(item.severity, style=_STYLES[item.severity])
        grid.add_row(severity, item.host, what, item.how)
    return grid


def _commands(commands: Iterable[str], console: Console, width: int) -> None:
    for command in commands:
        # Broken only where a shell goes on: the lines are there to be copied.
        lines = textwrap.wrap(command, width - 6, break_long_words=False, break_on_hyphens=False)
        console.print(
            " \\\n".join(f"  {'  ' if number else ''}{line}" for number, line in enumerate(lines)),
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
