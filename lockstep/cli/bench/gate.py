"""`lockstep bench gate`: every Spark's hot model against its floor."""

from __future__ import annotations

from pathlib import Path

import click

from lockstep.cli.shared import UNUSABLE
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import Answer, ask, at_once, choose


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--limit", multiple=True, metavar="HOST", help="Only this host; may be repeated.")
@click.option(
    "--accept", is_flag=True, help="Record the present speed as the accepted one, however slow."
)
@click.pass_context
def gate(context: click.Context, inventory: Path, limit: tuple[str, ...], accept: bool) -> None:
    """Check the hot model of each Spark against its floor of speed and sense.

    The floor is `targets.NAME.floor` of group data; a deploy measures in the same way.

    Exit codes: 0 fast enough, no floor, or accepted; 1 below the floor; 2 could not be measured,
    for example because no model is hot where a target has a floor. The exit code is the worst of
    all hosts.
    """
    _, hosts = choose(inventory, limit)
    argv = ["sudo", "-n", *command("floor", *(["--accept"] if accept else []))]
    ended = [_judged(found) for found in at_once(lambda host: ask(host.login, argv), hosts)]
    for host, (_, line) in zip(hosts, ended, strict=True):
        click.echo(f"{host.name}  {line}")
    context.exit(max(code for code, _ in ended))


def _judged(found: Answer) -> tuple[int, str]:
    """Exit code and line for one host."""
    if found.fault:
        return UNUSABLE, found.fault
    lines = (found.out + found.err).strip().splitlines()
    last = lines[-1].strip() if lines else f"{found.said} and said nothing"
    return (found.code if found.code in (0, 1) else UNUSABLE), last
