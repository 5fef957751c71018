"""What commands share: exit codes, options, groups of commands, findings on a terminal.

A command returns its exit code: 0 done, 1 a finding to act on, 2 wrong use or could not tell.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import click
from rich.text import Text

from lockstep.core.findings import Finding
from lockstep.core.terminal import console, indented

DONE, FINDINGS, UNUSABLE = 0, 1, 2
#: Ended by Ctrl-C, as a shell has it.
INTERRUPTED = 130

LIMIT = click.option(
    "--limit", multiple=True, metavar="HOST", help="Only this host; may be repeated."
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="The same facts for programs.")


class LazyGroup(click.Group):
    """Commands that are imported when they are used, each from its module in `modules`."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules = modules

    def list_commands(self, context: click.Context) -> list[str]:
        """Their names."""
        return sorted(self.modules)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; UsageError with the nearest names where there is none."""
        if args[0] not in self.modules:
            # Click itself looks among commands that are imported.
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self.modules, ctx=context)
        return super().resolve_command(context, args)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """One of them, None where there is none of that name."""
        if name not in self.modules:
            return None
        command: click.Command = getattr(import_module(self.modules[name]), name)
        return command


def print_json(value: Any) -> None:
    """One JSON document, for programs; a dataclass is a mapping of its fields."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    return str(value)


def ask_first(question: str, *, yes: bool, otherwise: str) -> None:
    """End the command unless the user agrees; `otherwise`: what to do where nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"nobody can be asked here: {otherwise}")
    if not confirm(question):
        raise click.Abort


def confirm(question: str) -> bool:
    """Whether the user agrees; Ctrl-C ends the command, and no more input is a no."""
    try:
        return click.confirm(question)
    except click.Abort as ended:
        click.echo()
        # Click makes one of both.
        if isinstance(ended.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt("Nothing was changed.") from None
        return False


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether one of them stands in the way; a warning does not."""
    return any(item.severity == "error" for item in findings)


def counted(findings: Sequence[Finding]) -> str:
    """ "1 error(s), 2 warning(s)"."""
    errors = sum(item.severity == "error" for item in findings)
    return f"{errors} error(s), {len(findings) - errors} warning(s)"


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
