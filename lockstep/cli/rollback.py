"""`lockstep rollback`: deploys the previous lock again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from lockstep.cli.lock import print_changes
from lockstep.cli.shared import DONE, FINDINGS, INVENTORY
from lockstep.core.errors import LockstepError
from lockstep.fleet.hosts import Host, choose, deploy
from lockstep.fleet.webui import Fitting, fitting, use
from lockstep.inventory import inventory_file as inventories
from lockstep.lock import lockfile
from lockstep.lock.lockdiff import changes
from lockstep.lock.pins import Pins


@click.command()
@INVENTORY
@click.option("--dry", is_flag=True, help="Show what would change; write and deploy nothing.")
@click.option(
    "--data",
    type=click.Choice(["return", "keep"]),
    help="What Open WebUI's older image begins with, without a question.",
)
def rollback(inventory: Path, dry: bool, data: str | None) -> int:
    """Restore the lock that was deployed before, and deploy it.

    Its content is still on the hosts (until `lockstep gc`), so nothing is downloaded. A lock that
    was changed and not yet deployed to all hosts returns to the deployed one. Otherwise a second
    rollback undoes the first, also where its deploy failed.

    Exit codes: 0 done; 1 the deploy failed; 2 there is no previous lock, or wrong use.
    """
    plans = inventories.load(inventory)
    path = inventories.lock_path(inventory.stem, plans)
    now = lockfile.load(path)
    pins, what, undone = _target(path, now)
    print_changes(changes(now, pins))
    copies = _copies(choose(inventory)[0], pins)
    if dry:
        click.echo(f"Would go back to {what}.")
        return DONE
    _returned(copies, data)
    lockfile.save(path, pins)
    click.echo(f"{path.name} is {what} again; deploying it.")
    code = deploy(inventory, what="rollback")
    if code:
        back = f"`lockstep rollback {inventory}` puts the other lock back."
        click.echo(
            f"The deploy failed; {path.name} stays as it is now. "
            f"`pyinfra {inventory} deploy.py` goes on, with --use-sudo-password where sudo asks "
            f"for a password. {back if undone else ''}".rstrip(),
            err=True,
        )
    return FINDINGS if code else DONE


def _copies(hosts: Sequence[Host], pins: Pins) -> list[Fitting]:
    """Say what of Open WebUI's data fits the lock; the hosts that have such a copy."""
    found = fitting(hosts, pins)
    for each in found:
        said = f"{each.host.name}: Open WebUI gets an older or newer image"
        if each.fault:
            said = f"{each.host.name}: copies of Open WebUI's data: {each.fault}"
        elif each.number is None:
            said += ", and no copy of its data is from that one. Where it refuses the present "
            said += "data, the present image returns."
        else:
            said += f". Its data of {each.date} (generation {each.generation}) fit: {each.loss}."
        click.echo(said, err=bool(each.fault))
    return [each for each in found if each.number is not None]


def _returned(copies: Sequence[Fitting], data: str | None) -> None:
    """Have the copies return, if that is wanted."""
    if not copies or data == "keep":
        return
    if data is None:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "nobody can be asked here: --data return takes the older data, --data keep tries "
                "the older image on the present ones"
            )
        if not click.confirm("Return these data with the image?"):
            return
    for each in copies:
        if fault := use(each):
            raise LockstepError(
                "its copy of Open WebUI's data cannot be used; nothing was changed",
                where=each.host.name,
                found=fault,
            )


def _target(path: Path, now: Pins) -> tuple[Pins, str, bool]:
    """The lock to go back to, what it is in words, and whether a second rollback undoes it.

    A lock that was never deployed whole is kept nowhere.
    """
    last, before = lockfile.deployed_path(path), lockfile.previous_path(path)
    if last.exists():
        deployed = lockfile.load(last)
        if deployed != now:
            return deployed, "the lock that the last whole deploy used", False
        if before.exists():
            return lockfile.load(before), "the lock that was deployed before", True
    raise LockstepError(
        "there is no lock to go back to",
        where=str(path),
        found=f"no {before.name}" if last.exists() else f"no {last.name}",
        remedy="The deploy keeps them when it has reached all hosts; else take an older lock from "
        "version control and deploy.",
    )
