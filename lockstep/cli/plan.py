"""`lockstep plan`: the models of each host, whether they fit, and the findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from lockstep.cli.inventory_option import INVENTORY
from lockstep.cli.shared import (
    AS_JSON,
    DONE,
    FINDINGS,
    counted,
    has_errors,
    print_findings,
    print_json,
)
from lockstep.core.terminal import console, indented
from lockstep.deploy.plan import Download, Plan, PlannedHost, make
from lockstep.onhost.core.need import rounded_up


@click.command()
@INVENTORY
@AS_JSON
def plan(inventory: Path, as_json: bool) -> int:
    """Show the models of each host, and whether they fit.

    This contacts no host. Exit codes: 0 no errors, perhaps warnings; 1 errors, and a deploy would
    end before it touches anything; 2 the input cannot be used.
    """
    made = make(inventory)
    if as_json:
        print_json(made)
    else:
        print_plan(made)
    return FINDINGS if has_errors(made.findings) else DONE


def print_plan(made: Plan, limit: Sequence[str] = ()) -> None:
    """Print the models of each host (of `limit`, () for all), the downloads and the findings."""
    previous: PlannedHost | None = None
    for host in made.hosts:
        if limit and host.name not in limit:
            continue
        same = previous is not None and host.targets == previous.targets
        _print_host(host, previous if same else None)
        previous = host
    if made.findings:
        click.echo()
        print_findings(made.findings)
    for item in made.waived:
        click.echo(f"waived {item.code}  {item.subject}")
    click.echo(f"\n{counted(made.findings)}, {len(made.waived)} waived")


def _print_host(host: PlannedHost, same_as: PlannedHost | None) -> None:
    console().print(f"\n{host.name}", style="bold")
    if same_as is not None:
        click.echo(f"  the same as {same_as.name}")
    else:
        table = Table(box=None, pad_edge=False, padding=(0, 1), show_edge=False)
        # On a phone the others are folded: what is looked for is the target and its verdict.
        table.add_column("  target", no_wrap=True)
        table.add_column("address", overflow="fold")
        table.add_column("GiB to start", min_width=5)
        table.add_column("GiB in use", min_width=5)
        table.add_column("verdict", no_wrap=True)
        for target in host.targets:
            found = target.fit
            needs = rounded_up(found.needs_gib) if found and found.needs_gib else "unknown"
            used = found.host_use_gib if found else None
            shown = (needs, f"{used:.1f}" if used else "unknown")
            verdict = found.verdict if found else "cannot run"
            table.add_row(f"  {target.name}", target.address, *shown, verdict)
        console().print(table)
        for target in host.targets:
            also = f", else {target.fallback}" if target.fallback else ""
            where = f", rank {target.rank} of cluster {target.cluster}" if target.cluster else ""
            indented(f"{target.name}: {target.recipe}{also}{where}")
        indented("One is hot at a time. GiB to start: what MemAvailable must show at least.")
    # Nobody asks the host.
    indented(f"To fetch: {_bytes(host.downloads)}, less what is there already.")
    if host.from_peers:
        indented(f"Of these an earlier host has {_bytes(host.from_peers)}.")


def _bytes(downloads: Sequence[Download]) -> str:
    """ "94.6 GB and 2 images of unknown size"."""
    known = sum(item.size or 0 for item in downloads)
    unknown = sum(item.size is None for item in downloads)
    text = f"{known / 1e9:.1f} GB"
    return f"{text} and {unknown} of unknown size" if unknown else text
