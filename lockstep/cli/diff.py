"""`lockstep diff`: the hosts compared with inventory and lock, and with each other."""

from __future__ import annotations

import contextlib
import functools
import sys
from pathlib import Path

import click

from lockstep.cli.common import AS_JSON, INTERRUPTED, LIMIT, print_json
from lockstep.cli.deploy import carry_out
from lockstep.cli.inventory_option import INVENTORY, command_text
from lockstep.core.errors import InventoryError
from lockstep.core.terminal import console
from lockstep.drift import page, report, view
from lockstep.drift.compare import fixable


@click.command()
@INVENTORY
@LIMIT
@AS_JSON
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="Also write an HTML page."
)
@click.option("--deep", is_flag=True, help="Read every byte of weights and packages.")
@click.option("--ask-sudo-password", is_flag=True, help="Ask once for sudo's password.")
@click.option(
    "--fix", is_flag=True, help="Deploy where a deploy helps, as `deploy`; then compare again."
)
@click.option("--yes", is_flag=True, help="With --fix: ask nothing before it interrupts.")
def diff(
    inventory: Path,
    limit: tuple[str, ...],
    as_json: bool,
    html: Path | None,
    deep: bool,
    ask_sudo_password: bool,
    fix: bool,
    yes: bool,
) -> int:
    """Compare the Sparks with the inventory and with each other.

    It asks all hosts at once, and without --fix changes nothing there but the result for the page.
    If hosts differ only from each other, all are named with their values, and none is to change.
    The deploy of --fix asks before it interrupts a hot model; without a terminal to ask on, nothing
    is touched.

    Exit codes: 0 no drift; 1 drift; 2 could not tell (a host does not answer, or a part of it
    cannot be read); 130 ended by Ctrl-C.
    """
    if yes and not fix:
        raise click.UsageError("--yes goes with --fix")
    if fix and ask_sudo_password:
        raise click.UsageError("--fix takes no password; use pyinfra's --use-sudo-password")
    password = click.prompt("sudo password", hide_input=True) if ask_sudo_password else None
    look = functools.partial(report.diff, inventory, limit=limit, deep=deep, password=password)
    drift_report = look()
    if fix and (
        hosts := list(dict.fromkeys(item.host for item in fixable(drift_report.differences)))
    ):
        click.echo(f"Deploying to {', '.join(hosts)} ...", err=True)
        # The deploy prints its own changes.
        with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
            code = carry_out(inventory, hosts, yes=yes, command="diff --fix")
        if code == INTERRUPTED:
            return code
        if code:
            click.echo(f"The deploy ended with {code}; what is left:", err=True)
        drift_report = look()
    if html is not None:
        with InventoryError.instead("the page cannot be written", html):
            html.write_text(page.render(drift_report), encoding="utf-8")
    if as_json:
        unknown = [{"host": host, "why": why} for host, why in drift_report.unknown]
        print_json({**vars(drift_report), "unknown": unknown, "code": drift_report.code})
    else:
        limit_words = [word for name in limit for word in ("--limit", name)]
        view.table(drift_report, console(), command_text("diff", *limit_words, "--fix"))
    return drift_report.code
