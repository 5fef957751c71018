"""`lockstep gc`: the removal of content that no kept generation of a host needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from lockstep.cli.common import LIMIT, ask_first
from lockstep.cli.each_host import answering_hosts, exit_code, of_each
from lockstep.cli.inventory_option import INVENTORY
from lockstep.core.terminal import bytes_text, console
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import Host, ask, choose

KEEP = 2
_LIMIT_S = 1800.0


@click.command()
@INVENTORY
@click.option("--dry", is_flag=True, help="Show the items; remove nothing.")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=KEEP,
    show_default=True,
    help="Number of generations to keep, with the present one.",
)
@LIMIT
def gc(inventory: Path, dry: bool, yes: bool, keep: int, limit: tuple[str, ...]) -> int:
    """Free disk space that no kept generation needs.

    On every Spark of the inventory it removes engine environments, images, checkpoints,
    unpacked wheels and compiled kernels. It never removes running things, things that a deploy is
    about to use, or things that Lockstep did not make. The sizes are the space that comes free;
    images may share layers with remaining ones.

    Exit codes: 0 done; 1 an item could not be removed, or the answer was no; 2 wrong use, no
    terminal for the question, no connection, a password for sudo, no generation on record, or a
    deploy or switch under way on a host, or more became unneeded meanwhile.
    """
    _, hosts = choose(inventory, limit)
    plans = of_each(lambda host: _ask(host, keep, "plan"), hosts)
    digests: dict[str, str] = {}
    every: list[Mapping[str, Any]] = []
    for host, answer in answering_hosts(plans):
        _show(host.name, answer["items"])
        if answer["items"] or answer["dropped"]:
            digests[host.name] = answer["digest"]
            every += answer["items"]
    if dry or not digests:
        return exit_code(plans)
    question = f"Remove {len(every)} item(s), {_bytes(every)}, from {len(digests)} host(s)?"
    ask_first(question, yes=yes, otherwise="--yes removes, --dry only shows")
    outcomes = of_each(
        lambda host: _ask(host, keep, "remove", "--digest", digests[host.name]),
        [host for host in hosts if host.name in digests],
    )
    has_failed = False
    for host, answer in answering_hosts(outcomes):
        click.echo(f"{host.name}: {_bytes(answer['removed'])} freed")
        for item in answer["failed"]:
            click.echo(f"{host.name}: {item['kind']} {item['name']} stays: {item['why']}", err=True)
            has_failed = True
    return exit_code([*plans, *outcomes], has_failed)


def _ask(host: Host, keep: int, *words: str) -> tuple[Any, str]:
    """Return the program's JSON, or None and the reason why there is none."""
    argv = ["sudo", "-n", *command("cleanup", *words, "--keep", str(keep))]
    return ask(host.login, argv, limit_s=_LIMIT_S).json()


def _show(name: str, items: Iterable[Mapping[str, Any]]) -> None:
    if not items:
        click.echo(f"{name}: nothing to remove")
        return
    title = f"{name}: {_bytes(items)}"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("what", no_wrap=True)
    table.add_column("name", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    for item in items:
        table.add_row(item["kind"], item["name"], _bytes([item]))
    console().print(table)


def _bytes(items: Iterable[Mapping[str, Any]]) -> str:
    return bytes_text(sum(int(item["bytes"]) for item in items))
