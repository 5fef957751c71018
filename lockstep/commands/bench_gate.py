"""`lockstep bench gate`: is every Spark's hot model still as fast as its floor demands."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from lockstep import inventory as inventories
from lockstep.commands.shared import UNUSABLE, errors_as_sentences
from lockstep.errors import InventoryError
from lockstep.login import NO_CONNECTION, SUDO, Login, login, sudo_refused
from lockstep.managed import PROGRAMS


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--limit", multiple=True, metavar="HOST", help="Only this host; may be repeated.")
@click.option("--accept", is_flag=True, help="Later ones are held to what is measured now.")
@click.pass_context
@errors_as_sentences
def gate(context: click.Context, inventory: Path, limit: tuple[str, ...], accept: bool) -> None:
    """Measure the hot model of each Spark of INVENTORY against its floor, as a deploy does.

    The floor is `targets.NAME.floor` of group data. With --accept what is measured is put on
    record, however slow, also where there is no floor. Exit 0: fast enough, no floor, or accepted;
    1: below the floor; 2: could not be told, for example because no model is hot where a target has
    a floor. The exit code is the worst of all hosts'.
    """
    hosts = _hosts(inventory, limit)
    argv = ["sudo", "-n", "python3", f"{PROGRAMS}/floor.py", *(["--accept"] if accept else [])]
    with ThreadPoolExecutor(len(hosts)) as pool:
        ended = list(pool.map(lambda host: _ask(host, argv), hosts))
    for host, (_, line) in zip(hosts, ended, strict=True):
        click.echo(f"{host.name}  {line}")
    context.exit(max(code for code, _ in ended))


def _hosts(inventory: Path, limit: tuple[str, ...]) -> list[Login]:
    plans = [plan.name for plan in inventories.load(inventory)]
    data = inventories.merged(inventory)
    if unknown := [name for name in limit if name not in plans]:
        raise InventoryError(
            "no such host", where=str(inventory), found=", ".join(unknown), allowed=", ".join(plans)
        )
    return [login(name, data[name]) for name in limit or plans]


def _ask(where: Login, argv: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(
        where.command(argv), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    last = lines[-1].strip() if lines else f"ended with {done.returncode} and said nothing"
    if where.words and done.returncode == NO_CONNECTION:
        return UNUSABLE, f"no connection ({last})"
    if sudo_refused(done.returncode, done.stderr):
        return UNUSABLE, f"{last}. {SUDO}"
    return (done.returncode if done.returncode in (0, 1) else UNUSABLE), last
