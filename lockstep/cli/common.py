"""Common parts of the commands: exit codes, options, groups, findings on a terminal.

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
from lockstep.core.terminal import console, print_indented

DONE, FINDINGS, UNUSABLE = 0, 1, 2
#: The exit code after Ctrl-C, as in a shell.
INTERRUPTED = 130

LIMIT = click.option(
    "--limit", multiple=True, metavar="HOST", help="Only this host; may be repeated."
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="The same facts for programs.")


class LazyGroup(click.Group):
    """A group whose commands are imported on first use, each from its module in `modules`."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules = modules

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted(self.modules)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the words mean.

        Raises:
            UsageError: no such command, with the nearest names.
        """
        if args[0] not in self.modules:
            # Click itself looks only among imported commands.
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self.modules, ctx=context)
        return super().resolve_command(context, args)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return the command of a name, or None if there is none."""
        if name not in self.modules:
            return None
        command: click.Command = getattr(import_module(self.modules[name]), name)
        return command


def print_json(value: Any) -> None:
    """Print one JSON document for programs; a dataclass becomes a mapping of its fields."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    return str(value)


def ask_first(question: str, *, yes: bool, otherwise: str) -> None:
    """End the command unless the user agrees; `otherwise` says what to do without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"nobody can be asked here: {otherwise}")
    if not confirm(question):
        raise click.Abort


def confirm(question: str) -> bool:
    """Tell whether the user agrees; Ctrl-C ends the command, and end of input means no."""
    try:
        return click.confirm(question)
    except click.Abort as abort:
        click.echo()
        # Click raises the same exception for Ctrl-C and for the end of input.
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt("Nothing was changed.") from None
        return False


def has_errors(findings: Iterable[Finding]) -> bool:
    """Tell whether one of the findings is an error; a warning is not."""
    return any(item.severity == "error" for item in findings)


def count_text(findings: Sequence[Finding]) -> str:
    """Return the counts as "1 error(s), 2 warning(s)"."""
    errors = sum(item.severity == "error" for item in findings)
    return f"{errors} error(s), {len(findings) - errors} warning(s)"


def print_findings(findings: Iterable[Finding], *, with_subject: bool = True) -> None:
    """Print each finding as a paragraph: severity, code, subject, message, remedy."""
    output = console()
    for item in findings:
        style = "bold red" if item.severity == "error" else "yellow"
        output.print(Text.assemble((item.severity, style), f" {item.code}"))
        if with_subject:
            print_indented(item.subject)
        print_indented(item.message)
        if item.remedy:
            print_indented(f"→ {item.remedy}")
