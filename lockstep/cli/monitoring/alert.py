"""`lockstep alert`: whom an inventory's Sparks tell when something is wrong."""

from __future__ import annotations

from pathlib import Path

import click

from lockstep.cli.shared import DONE, FINDINGS, UNUSABLE, print_json
from lockstep.core.errors import InventoryError
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import Host, ask, at_once, choose
from lockstep.monitoring.alertmanager import UNIT, receivers
from lockstep.onhost.monitoring.alert_test import LIMIT_S


@click.group()
def alert() -> None:
    """Alerts of monitored Sparks (docs/monitoring.md)."""


@alert.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("host", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="The same facts for programs.")
@click.pass_context
def test(context: click.Context, inventory: Path, host: tuple[str, ...], as_json: bool) -> None:
    """Send a test alert from each HOST of INVENTORY to each of its receivers.

    Without HOST every Spark with an Alertmanager sends one. Two minutes later the test is over,
    which each receiver is told too.

    Exit codes: 0 every receiver took it; 1 one did not; 2 a Spark did not answer, or wrong use.
    """
    _, chosen = choose(inventory, host)
    tested = [each for each in chosen if receivers(each.plan.settings)]
    silent = [each.name for each in chosen if each not in tested]
    if not tested or (host and silent):
        raise InventoryError(
            "nobody is told of alerts",
            where=str(inventory),
            found=", ".join(silent),
            remedy="Set `monitoring` with `enabled` and `tell` (docs/monitoring.md), and deploy.",
        )
    found = list(zip(tested, at_once(_tested, tested), strict=True))
    if as_json:
        data = {each.name: {"receivers": told, "fault": why} for each, (told, why) in found}
        print_json(data)
    else:
        for each, (told, fault) in found:
            _print(each, told, fault)
    untold = any(why for _, (told, _) in found for why in told.values())
    unknown = any(fault for _, (_, fault) in found)
    context.exit(UNUSABLE if unknown else FINDINGS if untold else DONE)


def _tested(host: Host) -> tuple[dict[str, str], str]:
    """Receiver → why it did not take the message, and ""; or nothing, and why it cannot be told."""
    settings = host.plan.settings
    every = receivers(settings)
    words = [f"{name}={'email' if each.email else 'webhook'}" for name, each in every.items()]
    port = str(settings.monitoring.alertmanager_port)
    answer = ask(
        host.login,
        command("alert-test", settings.name, port, *words),
        limit_s=30 + LIMIT_S * len(words),
    )
    told, fault = answer.json()
    return (told or {}), fault


def _print(host: Host, told: dict[str, str], fault: str) -> None:
    if fault:
        click.echo(f"{host.name}: {fault}", err=True)
        return
    for name, receiver in receivers(host.plan.settings).items():
        why = told[name]
        click.echo(f"{host.name}: {name} ({receiver.shown}): {why or 'took the message'}")
        if why:
            click.echo(f"  → on {host.name}: journalctl -u {UNIT}")
