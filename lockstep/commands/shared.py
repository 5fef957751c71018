"""What every command shares: exit codes, errors without a traceback, findings on a terminal.

Exit codes: 0 done, 1 a finding to act on, 2 wrong use or could not tell.
"""

from __future__ import annotations

import functools
import json
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, ParamSpec, TypeVar

import click
from rich.console import Console
from rich.text import Text

from lockstep.errors import LockstepError, paragraph
from lockstep.findings import Finding

DONE, FINDINGS, UNUSABLE = 0, 1, 2

_P = ParamSpec("_P")
_R = TypeVar("_R")


def console() -> Console:
    """Standard output; 80 columns where it is not a terminal, so that output can be compared."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=80, color_system=None)


def errors_as_sentences(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """A command whose `LockstepError` becomes one paragraph on standard error and exit code 2."""

    @functools.wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return command(*args, **kwargs)
        except LockstepError as fault:
            click.echo(paragraph(f"lockstep: {fault}"), err=True)
            raise click.exceptions.Exit(UNUSABLE) from None

    return wrapped


def print_json(value: Any) -> None:
    """One JSON document, for programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def as_data(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings for `print_json`."""
    return [asdict(item) for item in findings]


def indented(text: str, by: int = 2) -> None:
    """Text wrapped to the terminal, every line ``by`` columns in."""
    width = min(console().width, 100)
    margin = " " * by
    click.echo(
        textwrap.fill(
            text,
            width,
            initial_indent=margin,
            subsequent_indent=margin,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def print_findings(findings: Iterable[Finding], *, with_subject: bool = True) -> None:
    """Each finding as a paragraph: severity, code, subject, message, remedy."""
    output = console()
    for item in findings:
        style = "bold red" if item.severity == "error" else "yellow"
        output.print(Text.assemble((item.severity, style), f" {item.code}"))
        if with_subject:
            indented(item.subject)
        indented(item.message)
        if item.remedy:
            indented(f"→ {item.remedy}")
