"""`lockstep bench compare`: tells a slower second result from noise."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from lockstep.bench.compare import Difference, differences
from lockstep.bench.results import Result, ResultError, load
from lockstep.bench.table import number
from lockstep.cli.shared import DONE, FINDINGS, print_json
from lockstep.core.terminal import console, indented


@click.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The same facts for programs.")
@click.pass_context
def compare(context: click.Context, first: Path, second: Path, as_json: bool) -> None:
    """Compare two results, and tell real differences from noise.

    The ratios are SECOND over FIRST. Exit codes: 0 no figure is worse beyond noise; 1 a figure is
    worse; 2 there is nothing to compare.
    """
    results = load(first), load(second)
    found = list(differences(*results))
    if not found:
        raise ResultError(
            "the results have no figure in common",
            where=f"{first}, {second}",
            found=" and ".join(_verdicts(result) for result in results),
            remedy="A suspect or refused suite has no figure; measure it again.",
        )
    if as_json:
        print_json([asdict(item) for item in found])
    else:
        _print(results, found)
    context.exit(FINDINGS if any(item.verdict == "worse" for item in found) else DONE)


def _verdicts(result: Result) -> str:
    return ", ".join(f"{suite.name} {suite.verdict}" for suite in result.suites) or "no suite"


def _print(results: tuple[Result, Result], found: list[Difference]) -> None:
    for key in ("host", "model", "recipe", "image", "revision", "generation", "lock"):
        before, after = (getattr(result.subject, key) for result in results)
        if before != after:
            indented(f"{key}: {before} → {after}", by=0)
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("figure", "first", "second", "ratio", "noise", ""):
        table.add_column(heading, justify="left" if heading in ("figure", "") else "right")
    for item in found:
        style = {"worse": "bold red", "better": "green"}.get(item.verdict, "")
        table.add_row(
            f"{item.suite} {item.name}",
            number(item.before),
            number(item.after),
            f"{item.ratio:.2f}",
            f"±{item.noise:.0%}",
            item.verdict,
            style=style,
        )
    console().print(table)
