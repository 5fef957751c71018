"""`lockstep alert`: the receivers of alerts from an inventory's Sparks."""

from __future__ import annotations

from pathlib import Path

import click

from lockstep.cli.common import AS_JSON, print_json
from lockstep.cli.each_host import answering_hosts, exit_code, of_each
from lockstep.cli.inventory_option import INVENTORY
from lockstep.core.errors import InventoryError
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import Host, ask, choose
from lockstep.monitoring.alertmanager import UNIT, receivers
from lockstep.onhost.monitoring.send_test_alert import LIMIT_S


@click.group()
def alert() -> None:
    """Test alerts of monitored Sparks (`lockstep help monitoring`)."""


@alert.command()
@INVENTORY
@click.argument("host", nargs=-1)
@AS_JSON
def test(inventory: Path, host: tuple[str, ...], as_json: bool) -> int:
    """Send a test alert from each HOST to each of its receivers.

    Without HOST every Spark with an Alertmanager sends one. Two minutes later the test ends, and
    each receiver gets a message about the end too.

    Exit codes: 0 every receiver took it; 1 one did not; 2 a Spark did not answer, or wrong use.
    """
    _, selected_hosts = choose(inventory, host)
    hosts_with_receivers = [
        candidate for candidate in selected_hosts if receivers(candidate.plan.settings)
    ]
    silent = [
        candidate.name for candidate in selected_hosts if candidate not in hosts_with_receivers
    ]
    if not hosts_with_receivers or (host and silent):
        raise InventoryError(
            "nobody is told of alerts",
            where=str(inventory),
            found=", ".join(silent),
            remedy="Set `monitoring` with `enabled` and `tell` (`lockstep help monitoring`), and "
            "deploy.",
        )
    answers = of_each(_send_test, hosts_with_receivers)
    if as_json:
        print_json(
            {
                candidate.name: {"receivers": outcome, "fault": why}
                for candidate, outcome, why in answers
            }
        )
    else:
        for candidate, outcome in answering_hosts(answers):
            _print(candidate, outcome)
    return exit_code(answers, any(why for _, outcome, _ in answers for why in outcome.values()))


def _send_test(host: Host) -> tuple[dict[str, str], str]:
    """Return the reason of each receiver's failure and "", or nothing and the reason for that."""
    settings = host.plan.settings
    every = receivers(settings)
    words = [
        f"{name}={'email' if receiver.email else 'webhook'}" for name, receiver in every.items()
    ]
    argv = command("alert-test", settings.name, str(settings.monitoring.alertmanager_port), *words)
    outcome, fault = ask(host.login, argv, limit_s=30 + LIMIT_S * len(words)).json()
    return (outcome or {}), fault


def _print(host: Host, outcome: dict[str, str]) -> None:
    for name, receiver in receivers(host.plan.settings).items():
        why = outcome[name]
        click.echo(f"{host.name}: {name} ({receiver.public_address}): {why or 'took the message'}")
        if why:
            click.echo(f"  → on {host.name}: journalctl -u {UNIT}")
