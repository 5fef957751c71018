"""`lockstep bench gate`: every Spark's hot model against its minimum of speed."""

from __future__ import annotations

from pathlib import Path

import click

from lockstep.cli.common import DONE, FINDINGS, LIMIT, UNUSABLE
from lockstep.cli.inventory_option import INVENTORY
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import ask, at_once, choose


@click.command()
@INVENTORY
@LIMIT
@click.option(
    "--accept", is_flag=True, help="Record the present speed as the accepted one, however slow."
)
def gate(inventory: Path, limit: tuple[str, ...], accept: bool) -> int:
    """Check each hot model against its minimum of speed and sense.

    The minimum is `models.NAME.minimum` of group data. A deploy measures in the same way.

    Exit codes: 0 fast enough, no minimum, or accepted; 1 below the minimum; 2 could not be
    measured, for example because no model is hot although a model has a minimum. The exit code is
    the worst of all hosts.
    """
    _, hosts = choose(inventory, limit)
    argv = ["sudo", "-n", *command("minimum", *(["--accept"] if accept else []))]
    codes = []
    for host, answer in zip(hosts, at_once(lambda host: ask(host.login, argv), hosts), strict=True):
        lines = (answer.out + answer.err).strip().splitlines()
        last = lines[-1].strip() if lines else f"{answer.error_text} and said nothing"
        click.echo(f"{host.name}  {answer.fault or last}")
        is_verdict = answer.code in (DONE, FINDINGS) and not answer.fault
        codes.append(answer.code if is_verdict else UNUSABLE)
    return max(codes)
