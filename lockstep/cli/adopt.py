"""`lockstep adopt`: shows engines that somebody else starts, as recipes and targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lockstep.cli.each_host import exit_code, of_each
from lockstep.cli.inventory_option import INVENTORY
from lockstep.core.errors import RecipeError
from lockstep.core.terminal import console
from lockstep.files import sent
from lockstep.fleet.hosts import Host, ask, choose
from lockstep.recipes import adopted

_LIMIT_S = 120.0
_STOPS = {"unit": "sudo systemctl disable --now", "container": "docker stop"}


@click.command()
@INVENTORY
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
def adopt(inventory: Path, hosts: tuple[str, ...]) -> int:
    """Show engines on the Sparks that Lockstep did not start.

    Each systemd unit and container that starts vLLM, SGLang or llama.cpp is printed as a recipe and
    a target to start from. Nothing is changed. Values that may be secrets are not read.

    Exit codes: 0 done, 2 wrong use, no connection, or a password for sudo.
    """
    _, chosen = choose(inventory, hosts)
    found = of_each(_asked, chosen)
    for host, engines, fault in found:
        console().print(f"\n{host.name}", style="bold")
        if fault:
            click.echo(f"{host.name}: {fault}", err=True)
        elif not engines:
            click.echo("  no engine that Lockstep did not start")
        for each in engines or ():
            _show(host.name, each)
    return exit_code(found)


def _asked(host: Host) -> tuple[Any, str]:
    document = sent.document("engine.theirs", adopted.ways())
    argv = ["sudo", "-n", *sent.COMMAND]
    return ask(host.login, argv, text=document, limit_s=_LIMIT_S).json()


def _show(host: str, theirs: dict[str, Any]) -> None:
    name = adopted.named(theirs)
    try:
        text = adopted.recipe(theirs, host)
    except RecipeError as fault:
        click.echo(f"{theirs['kind']} {theirs['name']}: {fault}")
        return
    click.echo(f"--- {name}.yaml, for a folder of `recipe_folders`; then `lockstep recipe check`")
    click.echo(text, nl=False)
    click.echo("--- for `targets` in the inventory")
    click.echo(adopted.target(theirs))
    click.echo(f"--- before the first switch: {_STOPS[theirs['kind']]} {theirs['name']}")
