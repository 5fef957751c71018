"""`lockstep bench gate`: every Spark's hot model against its floor."""

from __future__ import annotations

from pathlib import Path

import click

from lockstep.cli.inventory_option import INVENTORY
from lockstep.cli.shared import DONE, FINDINGS, LIMIT, UNUSABLE
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import ask, at_once, choose


@click.command()
@INVENTORY
@LIMIT
@click.option(
    "--accept", is_flag=True, help="Record the present speed as the accepted one, however slow."
)
def gate(inventory: Path, limit: tuple[str, ...], accept: bool) -> int:
    """Check each hot model against its floor of speed and sense.

    The floor is `targets.NAME.floor` of group data; a deploy measures in the same way.

    Exit codes: 0 fast enough, no floor, or accepted; 1 below the floor; 2 could not be measured,
    for example because no model is hot where a target has a floor. The exit code is the worst of
    all hosts.
    """
    _, hosts = choose(inventory, limit)
    argv = ["sudo", "-n", *command("floor", *(["--accept"] if accept else []))]
    codes = []
    for host, found in zip(hosts, at_once(lambda host: ask(host.login, argv), hosts), strict=True):
        lines = (found.out + found.err).strip().splitlines()
        last = lines[-1].strip() if lines else f"{found.said} and said nothing"
        click.echo(f"{host.name}  {found.fault or last}")
        told = found.code in (DONE, FINDINGS) and not found.fault
        codes.append(found.code if told else UNUSABLE)
    return max(codes)
