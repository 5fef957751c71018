"""`lockstep log`: the actions of people and deploys on all Sparks, in the order of time."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import click

from lockstep.cli.common import AS_JSON, LIMIT, print_json
from lockstep.cli.each_host import exit_code, of_each
from lockstep.cli.inventory_option import INVENTORY
from lockstep.core.terminal import is_narrow, print_indented
from lockstep.fleet.hosts import Host, choose, read

_READER, _LIMIT_S = "logged_events.audit_events", 60.0
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

    The lines come from each Spark's own journal, which drops old ones. Times are in UTC.

    Exit codes: 0 every Spark answered; 2 one did not.
    """
    utc = datetime.UTC
    first = since.replace(tzinfo=utc) if since else datetime.datetime.now(utc) - _WEEK
    _, selected_hosts = choose(inventory, limit)
    log_question = {
        "since": f"@{int(first.timestamp())}",
        "steps": "yes" if verbose or as_json else "no",
    }

    def lines(host: Host) -> tuple[Any, str]:
        return read(host.login, _READER, log_question, sudo=host.with_sudo, limit_s=_LIMIT_S)

    answers = of_each(lines, selected_hosts)
    log_lines = sorted(
        (at, host.name, line)
        for host, host_entries, _ in answers
        for at, line in host_entries or ()
    )
    silent = {host.name: fault for host, _, fault in answers if fault}
    if as_json:
        entries = [{"at": at, "host": name, "line": line} for at, name, line in log_lines]
        print_json({"lines": entries, "unknown": silent})
    else:
        wide, narrow = max((len(host.name) for host in selected_hosts), default=0), is_narrow()
        for at, name, line in log_lines:
            when = f"{datetime.datetime.fromtimestamp(at, utc):%Y-%m-%d %H:%M:%S}"
            if narrow:
                click.echo(f"{when}  {name}")
                print_indented(line)
            else:
                click.echo(f"{when}  {name:{wide}}  {line}")
    for name, fault in silent.items():
        click.echo(f"{name}: {fault}", err=True)
    return exit_code(answers)
