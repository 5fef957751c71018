"""`lockstep bench compare`: tells a slower second server from noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from lockstep.bench.compare import Difference, differences
from lockstep.bench.results import Result, ResultError, load
from lockstep.bench.table import number, short
from lockstep.cli.shared import AS_JSON, DONE, FINDINGS, UNUSABLE, print_json
from lockstep.core.terminal import console, indented


@click.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@AS_JSON
def compare(first: Path, second: Path, as_json: bool) -> int:
    """Compare two servers, and tell real differences from noise.

    FIRST and SECOND are results, or folders with several runs of one server each. The ratios are
    SECOND over FIRST, with the interval that holds the true one in 95 of 100 cases. A verdict needs
    an interval beyond 2 % (10 % for figures of the first token), half of that with five runs of
    each. Exit codes: 0 no figure is worse; 1 a figure is worse; 2 there is nothing to compare, or
    no figure has enough samples.
    """
    runs = _runs(first), _runs(second)
    found = list(differences(*runs))
    if not found:
        raise ResultError(
            "the results have no figure in common",
            where=f"{first}, {second}",
            found=" and ".join(map(_verdicts, runs)),
            remedy="A suspect or refused suite has no figure; measure it again.",
        )
    if as_json:
        print_json(found)
    else:
        _print(runs, found)
    if any(item.verdict == "worse" for item in found):
        return FINDINGS
    return UNUSABLE if all(item.low is None for item in found) else DONE


def _runs(path: Path) -> list[Result]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ResultError("no result is in this folder", where=str(path))
    return [load(file) for file in files]


def _verdicts(runs: Sequence[Result]) -> str:
    said = {f"{suite.name} {suite.verdict}" for result in runs for suite in result.suites}
    return ", ".join(sorted(said)) or "no suite"


def _print(runs: tuple[list[Result], list[Result]], found: list[Difference]) -> None:
    keys = ("host", "model", "recipe", "image", "revision", "generation", "lock", "max_clock_mhz")
    for key in keys:
        before, after = (
            ", ".join(sorted({str(getattr(result.subject, key)) for result in of_one}))
            for of_one in runs
        )
        if before != after:
            indented(f"{key}: {before} → {after}", by=0)
    for suite, items in groupby(found, lambda item: item.suite):
        console().print(f"\n{suite}", style="bold")
        console().print(_table(items))
    for reason in sorted({item.verdict for item in found if ":" in item.verdict}):
        indented(f"{reason}. Measure longer, or several runs of each")


def _table(found: Iterable[Difference]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("figure", "first", "second", "ratio", "interval", ""):
        table.add_column(heading, justify="left" if heading in ("figure", "") else "right")
    for item in found:
        table.add_row(
            short(item.name.replace(".", " ")),
            _shown(item.first),
            _shown(item.second),
            f"{item.ratio:.2f}",
            "" if item.low is None else f"{item.low:.2f}-{item.high:.2f}",
            item.verdict.partition(":")[0],
            style={"worse": "bold red", "better": "green"}.get(item.verdict, ""),
        )
    return table


def _shown(spread: Mapping[str, Any]) -> str:
    """Mean, and how far the samples are from it at most."""
    mean = spread["mean"]
    away = max(spread["high"] - mean, mean - spread["low"])
    return f"{number(mean)} ±{away / mean:.0%}" if mean else number(mean)
