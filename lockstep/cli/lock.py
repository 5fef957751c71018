"""`lockstep update` and `lockstep lock`: the present meaning of branches, tags and ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.table import Table

from lockstep.cli.inventory_option import INVENTORY
from lockstep.cli.shared import AS_JSON, DONE, FINDINGS, print_json
from lockstep.core.terminal import bytes_text, console
from lockstep.inventory import inventory_file as inventories
from lockstep.lock import lockfile
from lockstep.lock.lockdiff import Change, changes
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

    NAME is an environment, package, repository, image or model, or `precompiled`. All else stays
    where that is possible. It writes the lock file and contacts no Spark: `lockstep deploy` brings
    it there.

    Exit codes: 0 the lock is as shown; 1 with --check, the lock is behind; 2 something could not be
    resolved, or wrong use.
    """
    return _moved(inventory, names, dry, check, as_json)


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
    return _moved(inventory, (), dry, check, as_json)


def _moved(inventory: Path, only: Sequence[str], dry: bool, check: bool, as_json: bool) -> int:
    """Write a new lock, unless it is only looked at, and show what moved; the exit code."""
    plans = inventories.load(inventory)
    path = inventories.lock_path(inventory, plans)
    old = lockfile.load(path)
    new = relock(plans, old, only=only, report=lambda line: click.echo(line, err=True))
    found = changes(old, new)
    write = new != old and not dry and not check
    if write:
        lockfile.save(path, new)
    if as_json:
        print_json({"lock": str(path), "written": write, "changes": found})
    else:
        print_changes(found, first=old == Pins())
        click.echo(_ending(path, found, new, write))
    return FINDINGS if check and found else DONE


def print_changes(found: Sequence[Change], *, first: bool = False) -> None:
    """What moved, as a table; of a first lock, what it does not fit a screen, only numbers."""
    if first or not found:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("what", no_wrap=True)
    table.add_column("name", overflow="fold", ratio=3)
    table.add_column("was", overflow="fold", ratio=2, style="red")
    table.add_column("is", overflow="fold", ratio=2, style="green")
    for change in found:
        table.add_row(change.kind, change.name, change.old or "-", change.new or "-")
    console().print(table)


def _ending(path: Path, found: Sequence[Change], new: Pins, written: bool) -> str:
    if not found:
        return f"Nothing has moved; {path.name} is as it was."
    kinds = Counter(change.kind for change in found)
    count = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    done = "written" if written else "not written"
    changes = "1 change" if len(found) == 1 else f"{len(found)} changes"
    sizes = ", ".join(_sizes(found, new))
    return f"{changes} ({count}); {path.name} {done}{f': {sizes}' if sizes else ''}."


def _sizes(found: Sequence[Change], new: Pins) -> Iterator[str]:
    """Of the weights and images that moved, how much they are now."""
    for kind, pins, what in (("model", new.models, "weights"), ("image", new.images, "images")):
        moved = {change.name for change in found if change.kind == kind and change.new}
        if size := sum(pin.size for name, pin in pins.items() if name in moved):
            yield f"{bytes_text(size)} of {what}"
