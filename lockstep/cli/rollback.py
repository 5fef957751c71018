"""`lockstep rollback`: deploys the previous lock again."""

from __future__ import annotations

from pathlib import Path

import click

from lockstep.cli.lock import print_changes
from lockstep.cli.shared import DONE, FINDINGS
from lockstep.core.errors import LockstepError
from lockstep.fleet.hosts import deploy
from lockstep.inventory import inventory_file as inventories
from lockstep.lock import lockfile
from lockstep.lock.lockdiff import changes
from lockstep.lock.pins import Pins


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--dry", is_flag=True, help="Show what would change; write and deploy nothing.")
@click.pass_context
def rollback(context: click.Context, inventory: Path, dry: bool) -> None:
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
    if dry:
        click.echo(f"Would go back to {what}.")
        context.exit(DONE)
    lockfile.save(path, pins)
    click.echo(f"{path.name} is {what} again; deploying it.")
    code = deploy(inventory)
    if code:
        back = f"`lockstep rollback {inventory}` puts the other lock back."
        click.echo(
            f"The deploy failed; {path.name} stays as it is now. "
            f"`pyinfra {inventory} deploy.py` goes on, with --use-sudo-password where sudo asks "
            f"for a password. {back if undone else ''}".rstrip(),
            err=True,
        )
    context.exit(FINDINGS if code else DONE)


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
