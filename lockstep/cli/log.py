"""`lockstep log`: what people and deploys did to all Sparks, in the order of time."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import click

from lockstep.cli.shared import DONE, UNUSABLE, print_json
from lockstep.fleet.hosts import Host, at_once, choose, read

_LIMIT_S = 60.0
_WEEK = datetime.timedelta(days=7)


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--limit", multiple=True, metavar="HOST", help="Only this host; may be repeated.")
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%d %H:%M"]),
    metavar="DATE",
    help="The first day, or minute, in UTC; a week ago by default.",
)
@click.option("--json", "as_json", is_flag=True, help="The same facts for programs.")
@click.pass_context
def log(
    context: click.Context,
    inventory: Path,
    limit: tuple[str, ...],
    since: datetime.datetime | None,
    as_json: bool,
) -> None:
    """Show deploys, changes, switches and keys of the Sparks of INVENTORY, oldest first.

    The lines are those of each Spark's own journal, which forgets old ones. Times are in UTC.

    Exit codes: 0 every Spark answered; 2 one did not.
    """
    utc = datetime.UTC
    first = since.replace(tzinfo=utc) if since else datetime.datetime.now(utc) - _WEEK
    _, chosen = choose(inventory, limit)
    asked = {"since": f"@{int(first.timestamp())}"}

    def lines(host: Host) -> tuple[Any, str]:
        sudo = host.with_sudo
        return read(host.login, "history.audited", asked, sudo=sudo, limit_s=_LIMIT_S)

    answers = {
        host.name: answer for host, answer in zip(chosen, at_once(lines, chosen), strict=True)
    }
    found = sorted(
        (at, name, line) for name, (said, _) in answers.items() for at, line in said or ()
    )
    silent = {name: fault for name, (_, fault) in answers.items() if fault}
    if as_json:
        entries = [{"at": at, "host": name, "line": line} for at, name, line in found]
        print_json({"lines": entries, "unknown": silent})
    else:
        wide = max((len(name) for name in answers), default=0)
        for at, name, line in found:
            when = datetime.datetime.fromtimestamp(at, utc)
            click.echo(f"{when:%Y-%m-%d %H:%M:%S}  {name:{wide}}  {line}")
    for name, fault in silent.items():
        click.echo(f"{name}: {fault}", err=True)
    context.exit(UNUSABLE if silent else DONE)
