"""`lockstep client`: configurations of programs for the gateway, and a check of their requests."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from lockstep.cli.common import AS_JSON, DONE, FINDINGS, UNUSABLE, print_json
from lockstep.cli.inventory_option import INVENTORY
from lockstep.clients.check import ClientResult, GatewayAddress, Outcome, ask_all, shapes
from lockstep.clients.offer import GatewayOffer, of_host
from lockstep.clients.programs import PROGRAMS, VARIABLE, Program, reading
from lockstep.core.errors import LockstepError
from lockstep.core.terminal import console, is_narrow, print_indented
from lockstep.fleet.hosts import choose
from lockstep.fleet.tunnel import tunnel
from lockstep.inventory.bound_models import AUTO
from lockstep.units.gateway_unit import local_url

_HOST = click.option(
    "--host", metavar="HOST", help="Whose gateway; the first host of the inventory."
)


def _key_file(help_text: str) -> Callable[[Any], Any]:
    kind = click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True)
    return click.option("--key-file", type=kind, metavar="FILE", help=help_text)


@click.group()
def client() -> None:
    """Configure programs for the gateway, and check what they send.

    `lockstep help clients` has each program.
    """


@client.command()
@click.argument("name", required=False)
@INVENTORY
@_key_file(f"File with your key alone; without it {VARIABLE} holds one where it is needed.")
@_HOST
@AS_JSON
def check(
    name: str | None, inventory: Path, key_file: Path | None, host: str | None, as_json: bool
) -> int:
    """Check which requests of other programs the hot model takes.

    Open WebUI, Claude Code, Codex and others have shapes of requests that some models refuse. The
    command sends each shape once, for a short answer, and shows which work; with NAME only those of
    one program. It switches nothing.

    Exit codes: 0 each works, perhaps evened out; 1 one is refused; 2 no model is hot, one could not
    be told, or wrong use.
    """
    every, chosen_hosts = choose(inventory, [host] if host else [])
    asks = [shape for shape in shapes() if _plain(name or shape.program) == _plain(shape.program)]
    if not asks:
        programs = ", ".join(dict.fromkeys(shape.program for shape in shapes()))
        raise LockstepError("no such program", found=str(name), allowed=programs)
    key = (
        key_file.read_text(encoding="utf-8", errors="replace")
        if key_file
        else os.environ.get(VARIABLE, "")
    )
    # The gateway's listener on the host needs no certificate of its authority here.
    with tunnel(chosen_hosts[0].login, [local_url(chosen_hosts[0].plan.settings)]) as open_tunnel:
        gateway_address = GatewayAddress(open_tunnel.urls[0], key.strip() or None)
        hot = gateway_address.hot()
        offered_models = {model.name: model for model in of_host(chosen_hosts[0], every).models}
        pictures = hot in offered_models and offered_models[hot].images
        rows = list(ask_all(gateway_address, asks, pictures=pictures))
    if as_json:
        print_json({"host": chosen_hosts[0].name, "model": hot, "shapes": rows})
    else:
        _print_rows(rows)
        counts = Counter(row.outcome for row in rows)
        total = ", ".join(
            f"{counts[outcome]} {word}" for outcome, word in _OUTCOMES.items() if counts[outcome]
        )
        click.echo(f"{hot} on {chosen_hosts[0].name}: {total}")
    if any(row.outcome == "unknown" for row in rows):
        return UNUSABLE
    return FINDINGS if any(row.outcome == "refused" for row in rows) else DONE


_OUTCOMES: Mapping[Outcome, str] = {
    "works": "work as they are",
    "evened": "work evened out",
    "refused": "refused",
    "unknown": "could not be told",
    "left out": "left out",
}


def _plain(name: str) -> str:
    return name.casefold().replace(" ", "").replace("-", "")


def _print_rows(rows: Sequence[ClientResult]) -> None:
    """Print a line for each result; on a phone the outcome has lines of its own."""
    table = Table(box=None, pad_edge=False)
    for heading in ("program", "shape", "result"):
        table.add_column(heading)
    for row in rows:
        outcome_text = {
            "works": "works",
            "evened": f"works, evened out: {', '.join(row.evened_shapes)}",
            "unknown": f"could not tell: {row.why}",
        }.get(row.outcome, f"{row.outcome}: {row.why}")
        if is_narrow():
            click.echo(f"{row.program}: {row.shape}")
            print_indented(outcome_text)
        table.add_row(row.program, row.shape, outcome_text)
    if not is_narrow():
        console().print(table)


def _printing(program: str, known_program: Program) -> None:
    """Add the command that prints a program's configuration."""

    @client.command(program, short_help=f"Print the configuration of {program}.")
    @INVENTORY
    @_key_file("File with your key alone; the configuration names it.")
    @_HOST
    @click.option(
        "--model", default=AUTO, show_default=True, help="What it asks for where nothing is chosen."
    )
    def command(inventory: Path, key_file: Path | None, host: str | None, model: str) -> None:
        """Print the configuration of the program for the gateway.

        Standard output has the file itself. Standard error says where the file belongs, and what
        else is needed. No key is printed, because the program reads it from --key-file or from a
        variable. The command contacts no host.

        Exit codes: 0 done; 2 the input cannot be used.
        """
        every, chosen_hosts = choose(inventory, [host] if host else [])
        offer = of_host(chosen_hosts[0], every)
        names = [chat_model.name for chat_model in offer.chat]
        if model not in names:
            allowed_text = ", ".join(names) or "none answers"
            raise LockstepError(
                "no such model", where=offer.host, found=model, allowed=allowed_text
            )
        offer = offer.preferring(model)
        parts = known_program.parts(offer, key_file)
        for part in parts:
            if len(parts) > 1:
                click.echo(f"# {part.path}")
            click.echo(part.text, nl=False)
        for note in _notes(known_program, offer, key_file):
            click.echo(note, err=True)
        click.echo(f"It goes to {', '.join(part.path for part in parts)}.", err=True)


for _name, _program in PROGRAMS.items():
    _printing(_name, _program)


def _notes(program: Program, offer: GatewayOffer, key_file: Path | None) -> Iterator[str]:
    if offer.tunnel:
        yield f"First, and as long as you work: {offer.tunnel}"
    if key_file is None and offer.has_key:
        yield f"{program.variable} must hold your key."
    elif key_file is None:
        yield f"{program.variable}: any text; this listener needs no key."
    elif not program.reads_file:
        yield f"First: export {program.variable}={reading(key_file)}"
    if offer.authority:
        yield f"{program.trusts} must name a file with {offer.url}/root.crt."
