"""`lockstep gc`: removes content of hosts that no kept generation needs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from lockstep.cli.shared import DONE, FINDINGS, UNUSABLE
from lockstep.core.terminal import console
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import ask, at_once, choose
from lockstep.fleet.login import Login

KEEP = 2
_LIMIT_S = 1800.0


@dataclass(frozen=True)
class Found:
    """What one host answered: what would go, or why it could not tell."""

    where: Login
    items: Sequence[dict[str, Any]] = ()
    dropped: Sequence[int] = ()
    problem: str = ""

    @property
    def size(self) -> int:
        """Bytes of all items."""
        return sum(int(item["bytes"]) for item in self.items)


@dataclass(frozen=True)
class Ended:
    """What became of one host: bytes that came free, and what stayed, with the reason."""

    name: str
    bytes: int = 0
    failed: Sequence[dict[str, str]] = field(default_factory=tuple)
    problem: str = ""


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--dry", is_flag=True, help="Show the items; remove nothing.")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=KEEP,
    show_default=True,
    help="Number of generations to keep, with the present one.",
)
@click.option("--limit", multiple=True, metavar="HOST", help="Only this host; may be repeated.")
@click.pass_context
def gc(
    context: click.Context, inventory: Path, dry: bool, yes: bool, keep: int, limit: tuple[str, ...]
) -> None:
    """Free disk space that no kept generation needs.

    On every Spark of INVENTORY it removes engine environments, images, revisions of models,
    unpacked wheels and compiled kernels. It never removes running things, things that a deploy is
    about to use, or things that Lockstep did not make. The sizes are the space that comes free;
    images may share layers with remaining ones.

    Exit codes: 0 done; 1 an item could not be removed, or the answer was no; 2 wrong use, no
    terminal for the question, no connection, a password for sudo, no generation on record, or a
    deploy or switch under way on a host.
    """
    _, hosts = choose(inventory, limit)
    found = at_once(lambda where: _plan(where, keep), [host.login for host in hosts])
    for answer in found:
        _show(answer)
    unusable = any(answer.problem for answer in found)
    todo = [answer for answer in found if answer.items or answer.dropped]
    if dry or not todo:
        context.exit(UNUSABLE if unusable else DONE)
    size = sum(answer.size for answer in todo)
    count = sum(len(answer.items) for answer in todo)
    question = f"Remove {count} item(s), {_bytes(size)}, from {len(todo)} host(s)?"
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody can be asked here: --yes removes, --dry only shows")
        click.confirm(question, abort=True)
    ended = at_once(lambda answer: _remove(answer, keep), todo)
    for end in ended:
        _tell(end)
    unusable = unusable or any(end.problem for end in ended)
    failed = any(end.failed for end in ended)
    context.exit(UNUSABLE if unusable else FINDINGS if failed else DONE)


def _plan(where: Login, keep: int) -> Found:
    answer, problem = _asked(where, "plan", keep, "")
    if answer is None:
        return Found(where, problem=problem)
    return Found(where, answer["items"], answer["dropped"])


def _remove(found: Found, keep: int) -> Ended:
    ids = [item["id"] for item in found.items]
    answer, problem = _asked(found.where, "remove", keep, json.dumps({"ids": ids}))
    if answer is None:
        return Ended(found.where.name, problem=problem)
    size = sum(int(item["bytes"]) for item in answer["removed"])
    return Ended(found.where.name, size, answer["failed"])


def _asked(where: Login, action: str, keep: int, text: str) -> tuple[Any, str]:
    """The program's JSON, or None and why there is none."""
    argv = command("cleanup", action, "--keep", str(keep))
    return ask(where, ["sudo", "-n", *argv], text=text, limit_s=_LIMIT_S).json()


def _show(found: Found) -> None:
    name = found.where.name
    if found.problem:
        click.echo(f"{name}: {found.problem}", err=True)
        return
    if not found.items:
        click.echo(f"{name}: nothing to remove")
        return
    table = Table(title=f"{name}: {_bytes(found.size)}", title_justify="left", box=None)
    table.add_column("what", no_wrap=True)
    table.add_column("name", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    for item in found.items:
        table.add_row(item["kind"], item["name"], _bytes(item["bytes"]))
    console().print(table)


def _tell(ended: Ended) -> None:
    if ended.problem:
        click.echo(f"{ended.name}: {ended.problem}", err=True)
        return
    click.echo(f"{ended.name}: {_bytes(ended.bytes)} freed")
    for item in ended.failed:
        click.echo(f"{ended.name}: {item['id']} stays: {item['why']}", err=True)


def _bytes(size: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"
