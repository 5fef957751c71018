"""`lockstep log`: what people and deploys did to all Sparks, in the order of time."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import click

from lockstep.cli.each_host import exit_code, of_each
from lockstep.cli.inventory_option import INVENTORY
from lockstep.cli.shared import AS_JSON, LIMIT, print_json
from lockstep.core.terminal import indented, is_narrow
from lockstep.fleet.hosts import Host, choose, read

_READER, _LIMIT_S = "history.audited", 60.0
_WEEK = datetime.timedelta(days=7)


@click.command()
@INVENTORY
@LIMIT
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%d %H:%M"]),
    metavar="DATE",
    help="The first day, or minute, in UTC; a week ago by default.",
)
@click.option("-v", "--verbose", is_flag=True, help="Each change of a deploy, too.")
@AS_JSON
def log(
    inventory: Path,
    limit: tuple[str, ...],
    since: datetime.datetime | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Show deploys, switches and keys, oldest first.

    The lines are those of each Spark's own journal, which forgets old ones. Times are in UTC.

    Exit codes: 0 every Spark answered; 2 one did not.
    """
    utc = datetime.UTC
    first = since.replace(tzinfo=utc) if since else datetime.datetime.now(utc) - _WEEK
    _, chosen = choose(inventory, limit)
    asked = {"since": f"@{int(first.timestamp())}", "steps": "yes" if verbose or as_json else "no"}

    def lines(host: Host) -> tuple[Any, str]:
        return read(host.login, _READER, asked, sudo=host.with_sudo, limit_s=_LIMIT_S)

    answers = of_each(lines, chosen)
    found = sorted((at, host.name, line) for host, said, _ in answers for at, line in said or ())
    silent = {host.name: fault for host, _, fault in answers if fault}
    if as_json:
        entries = [{"at": at, "host": name, "line": line} for at, name, line in found]
        print_json({"lines": entries, "unknown": silent})
    else:
        wide, narrow = max((len(host.name) for host in chosen), default=0), is_narrow()
        for at, name, line in found:
            when = f"{datetime.datetime.fromtimestamp(at, utc):%Y-%m-%d %H:%M:%S}"
            if narrow:
                click.echo(f"{when}  {name}")
                indented(line)
            else:
                click.echo(f"{when}  {name:{wide}}  {line}")
    for name, fault in silent.items():
        click.echo(f"{name}: {fault}", err=True)
    return exit_code(answers)
