"""`lockstep bench record`: figures of a result in the catalogue, marked measured."""

from __future__ import annotations

from pathlib import Path

import click

from lockstep.bench.record import figures, with_figures
from lockstep.bench.results import ResultError, load
from lockstep.fit.catalogue import FOLDER
from lockstep.onhost.core import atomic_files


@click.command()
@click.argument("result", type=click.Path(path_type=Path))
@click.option(
    "--recipe",
    type=click.Path(path_type=Path),
    help="File of the recipe, if not in catalogue/recipes.",
)
@click.option("--dry", is_flag=True, help="Show the figures; write nothing.")
def record(result: Path, recipe: Path | None, dry: bool) -> None:
    """Write the figures of RESULT into its recipe.

    A measured figure of the same name is replaced.
    """
    result_record = load(result)
    all_figures = figures(result_record)
    if not all_figures:
        raise ResultError(
            "the result has no figure for a recipe",
            where=str(result),
            remedy="Measure decode, speculation, tools or coding; a suspect suite has no figure.",
        )
    name = result_record.subject.recipe
    if recipe is None and name is None:
        raise ResultError(
            "the result does not say which recipe it is of",
            where=str(result),
            remedy="Measure a HOST, or name the file with --recipe.",
        )
    path = recipe or FOLDER / "recipes" / f"{name}.yaml"
    with ResultError.instead("the recipe cannot be edited", path, "Name its file with --recipe."):
        text = with_figures(path.read_text(encoding="utf-8"), all_figures, path)
        if not dry:
            atomic_files.write(path.resolve(), text)
    for figure in all_figures:
        click.echo(f"{figure.quantity}: {figure.value} {figure.unit}")
    click.echo(f"{'not written' if dry else 'written'}: {path.name}")
