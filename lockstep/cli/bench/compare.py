"""`lockstep bench compare`: two servers compared, with noise told apart from real differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from lockstep.bench.compare import ScoreDifference, differences
from lockstep.bench.results import Result, ResultError, load
from lockstep.bench.table import number, short
from lockstep.cli.common import AS_JSON, DONE, FINDINGS, UNUSABLE, print_json
from lockstep.core.terminal import console, print_indented


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
    changes = list(differences(*runs))
    if not changes:
        raise ResultError(
            "the results have no figure in common",
            where=f"{first}, {second}",
            found=" and ".join(map(_verdicts, runs)),
            remedy="A suspect or refused suite has no figure; measure it again.",
        )
    if as_json:
        print_json(changes)
    else:
        _print(runs, changes)
    if any(item.verdict == "worse" for item in changes):
        return FINDINGS
    return UNUSABLE if all(item.low is None for item in changes) else DONE


def _runs(path: Path) -> list[Result]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ResultError("no result is in this folder", where=str(path))
    return [load(file) for file in files]


def _verdicts(runs: Sequence[Result]) -> str:
    verdicts = {f"{suite.name} {suite.verdict}" for result in runs for suite in result.suites}
    return ", ".join(sorted(verdicts)) or "no suite"


def _print(runs: tuple[list[Result], list[Result]], changes: list[ScoreDifference]) -> None:
    keys = (
        "host",
        "served_name",
        "recipe",
        "image",
        "revision",
        "restart_key",
        "lock",
        "max_clock_mhz",
    )
    for key in keys:
        first_text, second_text = (
            ", ".join(sorted({str(getattr(result.subject, key)) for result in of_one}))
            for of_one in runs
        )
        if first_text != second_text:
            print_indented(f"{key}: {first_text} → {second_text}", by=0)
    for suite, items in groupby(changes, lambda item: item.suite):
        console().print(f"\n{suite}", style="bold")
        console().print(_table(items))
    for reason in sorted({item.verdict for item in changes if ":" in item.verdict}):
        print_indented(f"{reason}. Measure longer, or several runs of each")


def _table(changes: Iterable[ScoreDifference]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("figure", "first", "second", "ratio", "interval", ""):
        table.add_column(heading, justify="left" if heading in ("figure", "") else "right")
    for item in changes:
        table.add_row(
            short(item.name.replace(".", " ")),
            _spread_text(item.first),
            _spread_text(item.second),
            f"{item.ratio:.2f}",
            "" if item.low is None else f"{item.low:.2f}-{item.high:.2f}",
            item.verdict.partition(":")[0],
            style={"worse": "bold red", "better": "green"}.get(item.verdict, ""),
        )
    return table


def _spread_text(spread: Mapping[str, Any]) -> str:
    """Return the mean, and the largest distance of a sample from it."""
    mean = spread["mean"]
    away = max(spread["high"] - mean, mean - spread["low"])
    return f"{number(mean)} ±{away / mean:.0%}" if mean else number(mean)
