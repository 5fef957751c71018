"""`lockstep recipe`: list, show, check and add recipes; touches no host."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click
from rich.table import Table

from lockstep.checkpoints.licences import judge
from lockstep.cli.common import (
    AS_JSON,
    DONE,
    FINDINGS,
    UNUSABLE,
    count_text,
    has_errors,
    print_findings,
    print_json,
)
from lockstep.cli.inventory_option import find_inventory
from lockstep.cli.recipe.new import new
from lockstep.cli.recipe.view import as_row, print_recipe
from lockstep.core.errors import InventoryError, LockstepError, RecipeError
from lockstep.core.findings import Finding
from lockstep.core.terminal import console
from lockstep.fit import catalogue as catalogues
from lockstep.fit.catalogue import Catalogue
from lockstep.fit.fit import Fit, fit
from lockstep.fit.recipe_checks import check
from lockstep.inventory.inventory_file import lock_path
from lockstep.lock import lockfile
from lockstep.lock.pins import CheckpointPin
from lockstep.recipes.command import AsWritten, environment, serve_command
from lockstep.recipes.draft import draft_of
from lockstep.recipes.recipe_file import Recipe, load
from lockstep.recipes.secret_values import hide, of_command, of_variables
from lockstep.units.docker_run import run_options


@click.group()
def recipe() -> None:
    """List, check and write recipes: one per setup of a model."""


recipe.add_command(new)


@recipe.command("list")
@AS_JSON
def list_recipes(as_json: bool) -> None:
    """List the catalogue's recipes, and which of them fit."""
    catalogue = catalogues.load()
    answers = {name: _fit(item, catalogue) for name, item in catalogue.recipes.items()}
    if as_json:
        print_json([as_row(item, answers[name]) for name, item in catalogue.recipes.items()])
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("recipe", no_wrap=True)
    for heading in ("engine", "sparks", "verdict"):
        table.add_column(heading)
    for name, item in catalogue.recipes.items():
        answer = answers[name]
        engine = item.engine.name if item.engine else item.runtime
        hosts = str(answer.hosts) if answer else "?"
        table.add_row(name, engine, hosts, _word(item, catalogue, answer))
    console().print(table)


@recipe.command()
@click.argument("name_or_file")
@click.option("--engine-version", help="Version of the engine that will run it, such as 0.32.0.")
@AS_JSON
def show(name_or_file: str, engine_version: str | None, as_json: bool) -> None:
    """Show a recipe's command line, environment, memory and findings."""
    catalogue = catalogues.load()
    item = _find(name_or_file, catalogue)
    answer = _fit(item, catalogue)
    findings = check(item, catalogue, engine_version=engine_version)
    argv: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    # Where there is none, the finding `cannot-run` has the reason.
    with suppress(RecipeError):
        argv = serve_command(item)
    with suppress(RecipeError):
        variables = environment(item, control=AsWritten())
    model_pins = _model_pins(item)
    secrets = [*of_command(argv), *of_variables(variables)]
    argv = tuple(hide(word, secrets) for word in argv)
    variables = {key: hide(value, secrets) for key, value in variables.items()}
    if as_json:
        print_json(
            {
                **as_row(item, answer),
                "command": argv,
                "environment": variables,
                "container": item.container or None,
                "docker_options": run_options(item) if item.in_container else [],
                "figures": item.lockstep.figures,
                "findings": findings,
                "left_out": {name: pin.left_out for name, pin in model_pins.items()},
            }
        )
        return
    print_recipe(item, answer, argv, variables, model_pins)
    if findings:
        console().print("\nfindings", style="bold")
        print_findings(findings, with_subject=False)


@recipe.command("check")
@click.argument("files", nargs=-1, required=True)
@click.option("--engine-version", help="Version of the engine that will run them.")
@AS_JSON
def check_files(files: tuple[str, ...], engine_version: str | None, as_json: bool) -> int:
    """Check recipes, by name or file.

    Exit codes: 0 no errors, perhaps warnings; 1 errors; 2 unreadable.
    """
    catalogue = catalogues.load()
    findings: list[Finding] = []
    code = DONE
    for file in files:
        try:
            findings += check(_find(file, catalogue), catalogue, engine_version=engine_version)
        except LockstepError as fault:
            findings.append(Finding("unreadable", "error", file, str(fault)))
            code = UNUSABLE
    if as_json:
        print_json(findings)
    else:
        print_findings(findings)
        click.echo(f"{len(files)} recipe(s): {count_text(findings)}")
    return max(code, FINDINGS if has_errors(findings) else DONE)


@recipe.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("recipes"),
    show_default=True,
    help="Folder for the recipe.",
)
def add(file: Path, into: Path) -> int:
    """Add a recipe from elsewhere to your own.

    A finding of severity error refuses it. Warnings are shown, and the file is added unchanged.
    """
    catalogue = catalogues.load()
    item = load(file)
    findings = check(item, catalogue)
    print_findings(findings)
    if has_errors(findings):
        click.echo(f"{file} was not added.")
        return FINDINGS
    target = into / f"{item.name}.yaml"
    text = file.read_bytes()
    own_recipe = catalogue.recipes.get(item.name)
    # A recipe's name is unique over all folders.
    recipe_path = own_recipe.path if own_recipe else target
    if recipe_path.exists() and (
        recipe_path.resolve() != target.resolve() or recipe_path.read_bytes() != text
    ):
        raise RecipeError(
            "there is another recipe of that name",
            where=str(recipe_path),
            remedy="Rename the file.",
        )
    into.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text)
    click.echo(f"Added {item.name}. Bind it to a model in the inventory to deploy it.")
    return DONE


def _find(name_or_file: str, catalogue: Catalogue) -> Recipe:
    if name_or_file in catalogue.recipes:
        return catalogue.recipes[name_or_file]
    path = Path(name_or_file)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return load(path)
    raise RecipeError(
        f"no recipe is called {name_or_file!r}, and no file either",
        remedy="`lockstep recipe list` names them all.",
    )


def _model_pins(item: Recipe) -> dict[str, CheckpointPin]:
    """Return the pins of model and draft in the lock of the inventory here; {} without one."""
    try:
        pins = lockfile.load(lock_path(find_inventory(), ()))
    except InventoryError:
        return {}
    draft = draft_of(item)
    repositories = (item.repository, *([draft.model] if draft else []))
    return {name: pins.checkpoints[name] for name in repositories if name in pins.checkpoints}


def _fit(item: Recipe, catalogue: Catalogue) -> Fit | None:
    try:
        return fit(item, catalogue.knowledge)
    except RecipeError:
        return None


def _word(item: Recipe, catalogue: Catalogue, answer: Fit | None) -> str:
    """Return the first reason not to deploy a recipe, or its verdict of fit."""
    if item.engine is None:
        return "other engine"
    if item.lockstep.known_bad:
        return "known bad"
    if judge(item.lockstep.licence, catalogue.accepted_licences) == "refused":
        return "licence refused"
    return answer.verdict if answer else "unknown"
