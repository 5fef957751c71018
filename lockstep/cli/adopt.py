"""`lockstep adopt`: engines that somebody else starts, shown as recipes and models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lockstep.cli.each_host import exit_code, of_each
from lockstep.cli.inventory_option import INVENTORY
from lockstep.core.errors import RecipeError
from lockstep.core.terminal import console
from lockstep.files import remote_exec
from lockstep.fleet.hosts import Host, ask, choose
from lockstep.recipes import adopted_recipe

_LIMIT_S = 120.0
_STOPS = {"unit": "sudo systemctl disable --now", "container": "docker stop"}


@click.command()
@INVENTORY
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
def adopt(inventory: Path, hosts: tuple[str, ...]) -> int:
    """Show engines on the Sparks that Lockstep did not start.

    Each systemd unit and container that starts vLLM, SGLang or llama.cpp is printed as a recipe and
    a model to start from. Nothing is changed. Values that may be secrets are not read.

    Exit codes: 0 done, 2 wrong use, no connection, or a password for sudo.
    """
    _, selected_hosts = choose(inventory, hosts)
    answers = of_each(_read_engines, selected_hosts)
    for host, engines, fault in answers:
        console().print(f"\n{host.name}", style="bold")
        if fault:
            click.echo(f"{host.name}: {fault}", err=True)
        elif not engines:
            click.echo("  no engine that Lockstep did not start")
        for engine in engines or ():
            _show(host.name, engine)
    return exit_code(answers)


def _read_engines(host: Host) -> tuple[Any, str]:
    document = remote_exec.program_input("engine.foreign_engines", adopted_recipe.ways())
    argv = ["sudo", "-n", *remote_exec.COMMAND]
    return ask(host.login, argv, text=document, limit_s=_LIMIT_S).json()


def _show(host: str, engines: dict[str, Any]) -> None:
    name = adopted_recipe.recipe_name(engines)
    try:
        text = adopted_recipe.recipe(engines, host)
    except RecipeError as fault:
        click.echo(f"{engines['kind']} {engines['name']}: {fault}")
        return
    click.echo(f"--- {name}.yaml, for a folder of `recipe_folders`; then `lockstep recipe check`")
    click.echo(text, nl=False)
    click.echo("--- for `models` in the inventory")
    click.echo(adopted_recipe.model(engines))
    click.echo(f"--- before the first switch: {_STOPS[engines['kind']]} {engines['name']}")
