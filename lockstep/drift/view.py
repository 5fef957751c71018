"""A diff on a terminal: a table by severity, and commands for the repairs by hand.

Facts that only differ between hosts are shown with every host's value, and without a command.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lockstep.drift.compare import RANK, Difference, display, fixable
from lockstep.drift.report import Report
from lockstep.drift.subjects import KINDS
from lockstep.resources.fact_comparison import DriftRow, Severity

_STYLES = {"error": "bold red", "warning": "yellow", "differs": "magenta", "note": "cyan"}
#: The remedy for facts that only differ; the first word is their number.
UNDECIDED = (
    "{} only differ, and nothing says which host is right. Make them alike, or put them into "
    "`differs` of a host."
)


def summary(report: Report) -> str:
    """Return one sentence: how much differs, on how many hosts."""
    hosts = f"{len(report.hosts)} host{'s' if len(report.hosts) != 1 else ''}"
    parts = counts(item.severity for item in report.differences)
    if parts:
        # A difference between hosts has no host of its own, and concerns all.
        concerned_hosts = {item.host for item in report.differences}
        is_all = "" in concerned_hosts or len(concerned_hosts) >= len(report.hosts)
        where = hosts if is_all else f"{len(concerned_hosts)} of {hosts}"
        return f"{', '.join(parts.values())} on {where}."
    if report.unknown:
        return f"Could not tell whether {hosts} differ{'' if len(report.hosts) > 1 else 's'}."
    alike = " and as each other" if len(report.hosts) > 1 else ""
    return f"No drift: {hosts} as inventory and record ask{alike}."


def counts(severities: Iterable[Severity]) -> dict[Severity, str]:
    """Return the count of each severity as "2 warnings", worst first, without zeros."""
    counter = Counter(severities)
    plural: dict[Severity, str] = {"differs": "differ"}
    return {
        word: f"{number} {word if number == 1 else plural.get(word, f'{word}s')}"
        for word in RANK
        if (number := counter[word])
    }


def table(report: Report, console: Console, fix: str) -> None:
    """Print the report, with the command for the differences that a deploy puts right."""
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
    if undecided_count := sum(item.how == "decide" for item in report.differences):
        console.print(Text(UNDECIDED.format(undecided_count)), width=width)


def by_hand(differences: Iterable[Difference]) -> Mapping[str, list[str]]:
    """Return the commands to type on each host, each once."""
    by_command: dict[str, dict[str, None]] = {}
    for item in differences:
        if item.command:
            by_command.setdefault(item.host, {})[item.command] = None
    return {host: list(commands) for host, commands in by_command.items()}


def keeping(differences: Iterable[Difference], host: str) -> list[str]:
    """Return sentences on how differences to undo by hand on a host may stay instead."""
    remedies = (
        difference for difference in differences if difference.command and difference.host == host
    )
    sentences = (
        KINDS[difference.kind].keep(
            DriftRow(difference.item, difference.expected, difference.found)
        )
        for difference in remedies
    )
    return [sentence for sentence in sentences if sentence]


def _rows(differences: Iterable[Difference]) -> RenderableType:
    grid = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold", expand=True)
    grid.add_column("", no_wrap=True)
    grid.add_column("host", overflow="fold", max_width=14)
    grid.add_column("what differs", overflow="fold", ratio=1)
    grid.add_column("remedy", no_wrap=True)
    for item in differences:
        subject, lines = display(item)
        severity = Text(item.severity, style=_STYLES[item.severity])
        title = Text.assemble(f"{item.kind} ", (subject, "bold"))
        if item.host:
            texts = (Text(text, style="dim") for _, text in lines)
            grid.add_row(severity, item.host, Group(title, *texts), item.how)
            continue
        grid.add_row(severity, "", title, item.how)
        for hosts, text in lines:
            grid.add_row("", hosts, Text(text, style="dim"), "")
    return grid


def _commands(commands: Iterable[str], console: Console, width: int) -> None:
    for command in commands:
        # Broken only at a shell's continuation, because people copy the lines.
        lines = textwrap.wrap(command, width - 6, break_long_words=False, break_on_hyphens=False)
        console.print(
            " \\\n".join(f"  {'  ' if number else ''}{line}" for number, line in enumerate(lines)),
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
