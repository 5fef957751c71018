"""`lockstep plan`: the models of each host, their fit, and the findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from lockstep.cli.common import (
    AS_JSON,
    DONE,
    FINDINGS,
    count_text,
    has_errors,
    print_findings,
    print_json,
)
from lockstep.cli.inventory_option import INVENTORY
from lockstep.core.terminal import console, print_indented
from lockstep.deploy.plan import DeployPlan, Download, PlannedHost, make
from lockstep.onhost.core.memory_requirement import rounded_up


@click.command()
@INVENTORY
@AS_JSON
def plan(inventory: Path, as_json: bool) -> int:
    """Show the models of each host, and whether they fit.

    The command contacts no host. Exit codes: 0 no errors, perhaps warnings; 1 errors, and a deploy
    would end before it touches anything; 2 the input cannot be used.
    """
    fleet_plan = make(inventory)
    if as_json:
        print_json(fleet_plan)
    else:
        print_plan(fleet_plan)
    return FINDINGS if has_errors(fleet_plan.findings) else DONE


def print_plan(fleet_plan: DeployPlan, limit: Sequence[str] = ()) -> None:
    """Print the models of each host (of `limit`, () for all), the downloads and the findings."""
    previous: PlannedHost | None = None
    for host in fleet_plan.hosts:
        if limit and host.name not in limit:
            continue
        is_same = previous is not None and host.models == previous.models
        _print_host(host, previous if is_same else None)
        previous = host
    if fleet_plan.findings:
        click.echo()
        print_findings(fleet_plan.findings)
    for item in fleet_plan.waived_findings:
        click.echo(f"waived {item.code}  {item.subject}")
    click.echo(f"\n{count_text(fleet_plan.findings)}, {len(fleet_plan.waived_findings)} waived")


def _print_host(host: PlannedHost, same_as: PlannedHost | None) -> None:
    console().print(f"\n{host.name}", style="bold")
    if same_as is not None:
        click.echo(f"  the same as {same_as.name}")
    else:
        table = Table(box=None, pad_edge=False, padding=(0, 1), show_edge=False)
        # On a phone the other columns are folded, because people look for model and verdict.
        table.add_column("  model", no_wrap=True)
        table.add_column("address", overflow="fold")
        table.add_column("GiB to start", min_width=5)
        table.add_column("GiB in use", min_width=5)
        table.add_column("verdict", no_wrap=True)
        for model in host.models:
            host_fit = model.fit
            needs = rounded_up(host_fit.needs_gib) if host_fit and host_fit.needs_gib else "unknown"
            used_gib = host_fit.host_use_gib if host_fit else None
            memory_texts = (needs, f"{used_gib:.1f}" if used_gib else "unknown")
            verdict = host_fit.verdict if host_fit else "cannot run"
            table.add_row(f"  {model.name}", model.address, *memory_texts, verdict)
        console().print(table)
        for model in host.models:
            also = f", else {model.fallback}" if model.fallback else ""
            where = f", rank {model.rank} of cluster {model.cluster}" if model.cluster else ""
            settings = "; ".join(("", *_settings(model.settings)))
            print_indented(f"{model.name}: {model.recipe}{also}{where}{settings}")
        print_indented("One is hot at a time. GiB to start: what MemAvailable must show at least.")
    # The plan contacts no host, so it does not know which files are there.
    print_indented(f"To fetch: {_bytes(host.downloads)}, less what is there already.")
    if host.from_peers:
        print_indented(f"Of these an earlier host has {_bytes(host.from_peers)}.")


def _settings(values: Mapping[str, Any], inside: str = "") -> Iterator[str]:
    """Yield each key with its value: "minimum.decode_tok_s 29.0"."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{inside}{name}.")
        else:
            yield f"{inside}{name} {value}"


def _bytes(downloads: Sequence[Download]) -> str:
    """Return the sizes as "94.6 GB and 2 images of unknown size"."""
    known_bytes = sum(item.size or 0 for item in downloads)
    unknown = sum(item.size is None for item in downloads)
    text = f"{known_bytes / 1e9:.1f} GB"
    return f"{text} and {unknown} of unknown size" if unknown else text
