"""What every command shares: exit codes, errors without a traceback, findings on a terminal.

Exit codes: 0 done, 1 a finding to act on, 2 wrong use or could not tell.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, ParamSpec, TypeVar

import click
from rich.text import Text

from lockstep.core.errors import LockstepError, paragraph
from lockstep.core.findings import Finding
from lockstep.core.terminal import console, indented

DONE, FINDINGS, UNUSABLE = 0, 1, 2

_P = ParamSpec("_P")
_R = TypeVar("_R")


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
