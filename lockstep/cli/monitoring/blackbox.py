"""`lockstep blackbox`: the last minutes of a Spark, from the Spark that records it."""

from __future__ import annotations

from pathlib import Path

import click

from lockstep.cli.common import AS_JSON, print_json
from lockstep.cli.inventory_option import INVENTORY
from lockstep.core.errors import LockstepError
from lockstep.fleet.hosts import choose, read
from lockstep.monitoring.blackbox import Story, story
from lockstep.monitoring.blackbox_text import lines
from lockstep.monitoring.netconsole import identifier
from lockstep.monitoring.rules import PEER_JOB
from lockstep.monitoring.stack import SERIES

_LIMIT_S = 90.0


@click.command()
@INVENTORY
@click.argument("host")
@click.option("--before-boot", is_flag=True, help="The end of the boot before the present one.")
@click.option(
    "--minutes",
    type=click.IntRange(1, 60),
    default=10,
    show_default=True,
    metavar="N",
    help="How long before the end to begin; 1 to 60.",
)
@AS_JSON
def blackbox(inventory: Path, host: str, before_boot: bool, minutes: int, as_json: bool) -> None:
    """Show the last minutes of HOST: figures, changes, its kernel.

    They come from the Spark that records HOST, so HOST may be frozen or without power. If no Spark
    records it, the command reads the record on HOST's own disk, and says what that record lacks.
    While HOST is up, the last minutes are those until now. Times are in UTC.

    Exit codes: 0 shown; 2 nothing is known, or wrong use.
    """
    story = _read_story(inventory, host, before_boot, minutes)
    if as_json:
        series = {key: sorted(values.items()) for key, values in story.figures.items()}
        print_json({**vars(story), "figures": series, "state": sorted(story.state.items())})
        return
    for line in lines(story):
        click.echo(line)


def _read_story(inventory: Path, name: str, before_boot: bool, minutes: int) -> Story:
    every, (host,) = choose(inventory, [name])
    recorder = host.plan.ring.recorder
    hosts_by_name = {known_host.name: known_host for known_host in every}
    source_host = hosts_by_name[recorder.name] if recorder else host
    question = {
        "host": host.name,
        "minutes": minutes,
        "before_boot": before_boot,
        "job": PEER_JOB if recorder else "node",
        "url": source_host.plan.settings.prometheus_url,
        "series": list(SERIES),
        "identifier": identifier(host.name) if recorder else None,
    }
    answer, fault = read(
        source_host.login, "blackbox", question, sudo=source_host.with_sudo, limit_s=_LIMIT_S
    )
    if fault:
        by = f", which records {host.name}," if recorder else ""
        remedy = (
            f"On {source_host.name}: systemctl status lockstep-prometheus."
            if recorder
            else f"No other Spark records {host.name}: start it, and ask with --before-boot. "
            "`lockstep help monitoring black-box` says how two Sparks keep each other's last "
            "minutes."
        )
        message = f"{source_host.name}{by} tells nothing: {fault}"
        raise LockstepError(message, where=str(inventory), remedy=remedy)
    return story(host.name, recorder.name if recorder else None, minutes, answer)
