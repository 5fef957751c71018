"""`lockstep gc`: removes content of hosts that no kept generation needs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from lockstep.cli.shared import DONE, FINDINGS, UNUSABLE
from lockstep.core.terminal import bytes_text, console
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import ask, at_once, choose
from lockstep.fleet.login import Login

KEEP = 2
_LIMIT_S = 1800.0


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
    found = at_once(lambda host: _asked(host.login, "plan", keep), hosts)
    unusable = any(problem for _, problem in found)
    todo = []
    for host, (answer, problem) in zip(hosts, found, strict=True):
        _show(host.name, answer, problem)
        if answer and (answer["items"] or answer["dropped"]):
            todo.append((host, answer["items"]))
    if dry or not todo:
        context.exit(UNUSABLE if unusable else DONE)
    every = [item for _, items in todo for item in items]
    question = f"Remove {len(every)} item(s), {_bytes(every)}, from {len(todo)} host(s)?"
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody can be asked here: --yes removes, --dry only shows")
        click.confirm(question, abort=True)
    ended = at_once(lambda each: _removed(each[0].login, each[1], keep), todo)
    for (host, _), (answer, problem) in zip(todo, ended, strict=True):
        _tell(host.name, answer, problem)
    unusable = unusable or any(problem for _, problem in ended)
    failed = any(answer and answer["failed"] for answer, _ in ended)
    context.exit(UNUSABLE if unusable else FINDINGS if failed else DONE)


def _removed(where: Login, items: Sequence[Mapping[str, Any]], keep: int) -> tuple[Any, str]:
    return _asked(where, "remove", keep, json.dumps({"ids": [item["id"] for item in items]}))


def _asked(where: Login, action: str, keep: int, text: str = "") -> tuple[Any, str]:
    """The program's JSON, or None and why there is none."""
    argv = command("cleanup", action, "--keep", str(keep))
    return ask(where, ["sudo", "-n", *argv], text=text, limit_s=_LIMIT_S).json()


def _show(name: str, answer: Any, problem: str) -> None:
    if problem:
        click.echo(f"{name}: {problem}", err=True)
        return
    if not answer["items"]:
        click.echo(f"{name}: nothing to remove")
        return
    title = f"{name}: {_bytes(answer['items'])}"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("what", no_wrap=True)
    table.add_column("name", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    for item in answer["items"]:
        table.add_row(item["kind"], item["name"], _bytes([item]))
    console().print(table)


def _tell(name: str, answer: Any, problem: str) -> None:
    if problem:
        click.echo(f"{name}: {problem}", err=True)
        return
    click.echo(f"{name}: {_bytes(answer['removed'])} freed")
    for item in answer["failed"]:
        click.echo(f"{name}: {item['id']} stays: {item['why']}", err=True)


def _bytes(items: Iterable[Mapping[str, Any]]) -> str:
    return bytes_text(sum(int(item["bytes"]) for item in items))
