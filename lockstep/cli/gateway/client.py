"""`lockstep client`: configurations of programs that ask the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from lockstep.cli.inventory_option import INVENTORY
from lockstep.clients.offer import Offer, of_host
from lockstep.clients.programs import PROGRAMS, Program, reading
from lockstep.core.errors import LockstepError
from lockstep.fleet.hosts import choose
from lockstep.inventory.bound_targets import AUTO


@click.command()
@click.argument("program", type=click.Choice(sorted(PROGRAMS)))
@INVENTORY
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    help="File with your key alone; the configuration names it.",
)
@click.option("--host", metavar="HOST", help="Whose gateway; the first host of the inventory.")
@click.option(
    "--model", default=AUTO, show_default=True, help="What it asks for where nothing is chosen."
)
def client(
    program: str, inventory: Path, key_file: Path | None, host: str | None, model: str
) -> None:
    """Print the configuration of PROGRAM for the gateway.

    Standard output is the file itself, standard error says where it goes and what else is needed.
    No key is printed: the program reads it from --key-file, or from a variable. This contacts no
    host.

    Exit codes: 0 done; 2 the input cannot be used.
    """
    every, chosen = choose(inventory, [host] if host else [])
    offer = of_host(chosen[0], every)
    names = [each.name for each in offer.chat]
    if model not in names:
        allowed = ", ".join(names) or "none answers"
        raise LockstepError("no such model", where=offer.host, found=model, allowed=allowed)
    offer = offer.preferring(model)
    found = PROGRAMS[program]
    parts = found.parts(offer, key_file)
    for part in parts:
        if len(parts) > 1:
            click.echo(f"# {part.path}")
        click.echo(part.text, nl=False)
    for note in _notes(found, offer, key_file):
        click.echo(note, err=True)
    click.echo(f"It goes to {', '.join(part.path for part in parts)}.", err=True)


def _notes(program: Program, offer: Offer, key_file: Path | None) -> Iterator[str]:
    if offer.tunnel:
        yield f"First, and as long as you work: {offer.tunnel}"
    if key_file is None and offer.keyed:
        yield f"{program.variable} must hold your key."
    elif key_file is None:
        yield f"{program.variable}: any text; this door needs no key."
    elif not program.reads_file:
        yield f"First: export {program.variable}={reading(key_file)}"
    if offer.authority:
        yield f"{program.trusts} must name a file with {offer.url}/root.crt."
