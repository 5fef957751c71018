"""`lockstep update` and `lockstep lock`: the present meaning of branches, tags and ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.table import Table

from lockstep.cli.common import AS_JSON, DONE, FINDINGS, print_json
from lockstep.cli.inventory_option import INVENTORY
from lockstep.core.terminal import bytes_text, console
from lockstep.inventory import inventory_file as inventories
from lockstep.lock import lockfile
from lockstep.lock.lockdiff import LockChange, changes
from lockstep.lock.pins import Pins
from lockstep.lock.resolve.relock import relock

_DRY = click.option("--dry", is_flag=True, help="Show what would move; write nothing.")
_CHECK = click.option(
    "--check", is_flag=True, help="As --dry, and exit 1 where something would move."
)


@click.command()
@INVENTORY
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_DRY
@_CHECK
@AS_JSON
def update(inventory: Path, names: tuple[str, ...], dry: bool, check: bool, as_json: bool) -> int:
    """Move locked versions to the newest: of each NAME, or of all.

    NAME is an environment, package, repository, image or checkpoint, or `precompiled`. All else
    stays if possible. The command writes the lock file and contacts no Spark; `lockstep deploy`
    brings the new versions there.

    Exit codes: 0 the lock is as shown; 1 with --check, the lock is behind; 2 something could not be
    resolved, or wrong use.
    """
    return _move_lock(inventory, names, dry, check, as_json)


@click.command()
@INVENTORY
@_DRY
@_CHECK
@AS_JSON
def lock(inventory: Path, dry: bool, check: bool, as_json: bool) -> int:
    """Lock the exact versions of everything, anew.

    The command asks package indexes, git servers, registries and the hub, through the mirrors and
    the proxy of the deploy, and writes the lock file. It contacts no Spark. It names everything
    that cannot be resolved, and then writes nothing.

    Exit codes: 0 the lock is as shown; 1 with --check, the lock is behind; 2 something could not be
    resolved, or wrong use.
    """
    return _move_lock(inventory, (), dry, check, as_json)


def _move_lock(inventory: Path, only: Sequence[str], dry: bool, check: bool, as_json: bool) -> int:
    """Write a new lock unless dry or checking, show the changes, and return the exit code."""
    plans = inventories.load(inventory)
    path = inventories.lock_path(inventory, plans)
    old = lockfile.load(path)
    new = relock(plans, old, only=only, report=lambda line: click.echo(line, err=True))
    lock_changes = changes(old, new)
    write = new != old and not dry and not check
    if write:
        lockfile.save(path, new)
    if as_json:
        print_json({"lock": str(path), "written": write, "changes": lock_changes})
    else:
        print_changes(lock_changes, first=old == Pins())
        click.echo(_ending(path, lock_changes, new, write))
    return FINDINGS if check and lock_changes else DONE


def print_changes(lock_changes: Sequence[LockChange], *, first: bool = False) -> None:
    """Print the changes as a table; print nothing for a first lock, which fits no screen."""
    if first or not lock_changes:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("what", no_wrap=True)
    table.add_column("name", overflow="fold", ratio=3)
    table.add_column("was", overflow="fold", ratio=2, style="red")
    table.add_column("is", overflow="fold", ratio=2, style="green")
    for change in lock_changes:
        table.add_row(change.kind, change.name, change.old or "-", change.new or "-")
    console().print(table)


def _ending(path: Path, lock_changes: Sequence[LockChange], new: Pins, is_written: bool) -> str:
    if not lock_changes:
        return f"Nothing has moved; {path.name} is as it was."
    kinds = Counter(change.kind for change in lock_changes)
    count = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    ending = "written" if is_written else "not written"
    changes = "1 change" if len(lock_changes) == 1 else f"{len(lock_changes)} changes"
    sizes = ", ".join(_sizes(lock_changes, new))
    return f"{changes} ({count}); {path.name} {ending}{f': {sizes}' if sizes else ''}."


def _sizes(lock_changes: Sequence[LockChange], new: Pins) -> Iterator[str]:
    """Yield the new total sizes of the weights and the images that moved."""
    for kind, pins, contents in (
        ("checkpoint", new.checkpoints, "weights"),
        ("image", new.images, "images"),
    ):
        moved_names = {change.name for change in lock_changes if change.kind == kind and change.new}
        if size := sum(pin.size for name, pin in pins.items() if name in moved_names):
            yield f"{bytes_text(size)} of {contents}"
