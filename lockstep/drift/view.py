"""A diff on a terminal: a table by severity, and commands for the repairs by hand.

What only differs is shown with the value of every host, and nothing to type.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lockstep.drift.compare import RANK, Difference, fixable, shown
from lockstep.drift.report import Report
from lockstep.drift.subjects import KINDS
from lockstep.drift.subjects.kind import Row, Severity

_STYLES = {"error": "bold red", "warning": "yellow", "differs": "magenta", "note": "cyan"}
#: What to do about what only differs; the first word is their number.
UNDECIDED = (
    "{} only differ, and nothing says which host is right. Make them alike, or put them into "
    "`differs` of a host."
)


def summary(report: Report) -> str:
    """One sentence: how much differs, on how many hosts."""
    hosts = f"{len(report.hosts)} host{'s' if len(report.hosts) != 1 else ''}"
    parts = counts(item.severity for item in report.differences)
    if parts:
        # What only differs has no host of its own: it concerns all.
        concerned = {item.host for item in report.differences}
        is_all = "" in concerned or len(concerned) >= len(report.hosts)
        where = hosts if is_all else f"{len(concerned)} of {hosts}"
        return f"{', '.join(parts.values())} on {where}."
    if report.unknown:
        return f"Could not tell whether {hosts} differ{'' if len(report.hosts) > 1 else 's'}."
    alike = " and as each other" if len(report.hosts) > 1 else ""
    return f"No drift: {hosts} as inventory and record ask{alike}."


def counts(severities: Iterable[Severity]) -> dict[Severity, str]:
    """Severity → "2 warnings", worst first, without those that do not occur."""
    counted = Counter(severities)
    plural: dict[Severity, str] = {"differs": "differ"}
    return {
        word: f"{number} {word if number == 1 else plural.get(word, f'{word}s')}"
        for word in RANK
        if (number := counted[word])
    }


def table(report: Report, console: Console, fix: str) -> None:
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
        _commands([fix], console, width)
    for host, commands in by_hand(report.differences).items():
        console.print(Text.assemble("By hand, on ", (host, "bold"), ":"))
        _commands(commands, console, width)
        for sentence in keeping(report.differences, host):
            console.print(Text(sentence), width=width)
    if undecided := sum(item.how == "decide" for item in report.differences):
        console.print(Text(UNDECIDED.format(undecided)), width=width)


def by_hand(differences: Iterable[Difference]) -> Mapping[str, list[str]]:
    """Host → what to type there, each once."""
    found: dict[str, dict[str, None]] = {}
    for item in differences:
        if item.command:
            found.setdefault(item.host, {})[item.command] = None
    return {host: list(commands) for host, commands in found.items()}


def keeping(differences: Iterable[Difference], host: str) -> list[str]:
    """How what is to be undone by hand on a host may stay instead."""
    asked = (each for each in differences if each.command and each.host == host)
    sentences = (KINDS[each.kind].keep(Row(each.item, each.expected, each.found)) for each in asked)
    return [sentence for sentence in sentences if sentence]


def _rows(differences: Iterable[Difference]) -> RenderableType:
    grid = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold", expand=True)
    grid.add_column("", no_wrap=True)
    grid.add_column("host", overflow="fold", max_width=14)
    grid.add_column("what differs", overflow="fold", ratio=1)
    grid.add_column("remedy", no_wrap=True)
    for item in differences:
        subject, lines = shown(item)
        severity = Text(item.severity, style=_STYLES[item.severity])
        title = Text.assemble(f"{item.kind} ", (subject, "bold"))
        if item.host:
            said = (Text(text, style="dim") for _, text in lines)
            grid.add_row(severity, item.host, Group(title, *said), item.how)
            continue
        grid.add_row(severity, "", title, item.how)
        for hosts, text in lines:
            grid.add_row("", hosts, Text(text, style="dim"), "")
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
