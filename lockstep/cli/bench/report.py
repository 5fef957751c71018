"""`lockstep bench report`: every result on one page."""

from __future__ import annotations

from pathlib import Path

import click

from lockstep.bench.report import page
from lockstep.bench.results import ResultError, load
from lockstep.onhost.core import atomic_files

_FOLDER = Path("measured")


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=_FOLDER / "report.html",
    show_default=True,
)
def report(files: tuple[Path, ...], output: Path) -> None:
    """Write plots and tables of results as one HTML page.

    FILES are all of measured/ by default. The self-contained page has no script: decode and
    acceptance by prompt shape, prefill, concurrency, and the history of each model by lock.
    """
    result_files = files or tuple(sorted(_FOLDER.glob("*.json")))
    if not result_files:
        raise ResultError(
            "there is no result",
            where=str(_FOLDER),
            remedy="Measure first: `lockstep bench HOST`; or name files.",
        )
    text = page([load(path) for path in result_files])
    with ResultError.instead("the report cannot be written", output):
        atomic_files.write(output.resolve(), text)
    click.echo(f"{output}: {len(result_files)} result(s)")
