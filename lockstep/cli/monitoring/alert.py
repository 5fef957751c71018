"""`lockstep alert`: whom an inventory's Sparks tell when something is wrong."""

from __future__ import annotations

from pathlib import Path

import click

from lockstep.cli.each_host import answered, exit_code, of_each
from lockstep.cli.inventory_option import INVENTORY
from lockstep.cli.shared import AS_JSON, print_json
from lockstep.core.errors import InventoryError
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import Host, ask, choose
from lockstep.monitoring.alertmanager import UNIT, receivers
from lockstep.onhost.monitoring.alert_test import LIMIT_S


@click.group()
def alert() -> None:
    """Alerts of monitored Sparks (`lockstep help monitoring`)."""


@alert.command()
@INVENTORY
@click.argument("host", nargs=-1)
@AS_JSON
def test(inventory: Path, host: tuple[str, ...], as_json: bool) -> int:
    """Send a test alert from each HOST to each of its receivers.

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
            remedy="Set `monitoring` with `enabled` and `tell` (`lockstep help monitoring`), and "
            "deploy.",
        )
    found = of_each(_tested, tested)
    if as_json:
        print_json({each.name: {"receivers": told, "fault": why} for each, told, why in found})
    else:
        for each, told in answered(found):
            _print(each, told)
    return exit_code(found, any(why for _, told, _ in found for why in told.values()))


def _tested(host: Host) -> tuple[dict[str, str], str]:
    """Receiver → why it did not take the message, and ""; or nothing, and why it cannot be told."""
    settings = host.plan.settings
    every = receivers(settings)
    words = [f"{name}={'email' if each.email else 'webhook'}" for name, each in every.items()]
    argv = command("alert-test", settings.name, str(settings.monitoring.alertmanager_port), *words)
    told, fault = ask(host.login, argv, limit_s=30 + LIMIT_S * len(words)).json()
    return (told or {}), fault


def _print(host: Host, told: dict[str, str]) -> None:
    for name, receiver in receivers(host.plan.settings).items():
        why = told[name]
        click.echo(f"{host.name}: {name} ({receiver.shown}): {why or 'took the message'}")
        if why:
            click.echo(f"  → on {host.name}: journalctl -u {UNIT}")
