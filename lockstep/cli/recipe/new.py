"""`lockstep recipe new`: a recipe for a repository of the hub, in a folder of the owner's."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import click

from lockstep.authoring import place
from lockstep.authoring.fitting_settings import find_settings
from lockstep.authoring.related_recipes import find_related
from lockstep.authoring.site import Site, site_of
from lockstep.authoring.text import RecipeText, recipe_text
from lockstep.cli.common import DONE, FINDINGS, has_errors, print_findings
from lockstep.cli.inventory_option import INVENTORY_IF_NEEDED, find_inventory
from lockstep.cli.recipe import draft_view
from lockstep.cli.recipe.bind import offer_binding
from lockstep.core.errors import LockstepError, paragraph
from lockstep.fit import catalogue as catalogues
from lockstep.fit.fit import Fit
from lockstep.fit.recipe_checks import check
from lockstep.onhost.engines import ENGINES
from lockstep.recipes.recipe_file import parse


@click.command()
@click.argument("repository")
@click.option("--engine", type=click.Choice(sorted(ENGINES)), help="By the weights otherwise.")
@click.option("--name", help="Name of the recipe; the repository's otherwise.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("recipes"),
    show_default=True,
    help="Folder for the recipe; made where it is not there.",
)
@INVENTORY_IF_NEEDED
def new(
    repository: str, engine: str | None, name: str | None, folder: Path, inventory: Path | None
) -> int:
    """Write a recipe for REPOSITORY of the hub.

    It is named ORGANISATION/NAME, for GGUF with :QUANT.

    The command reads the small files of the repository, pins its commit, and computes share,
    context and Sparks. Parsers, image and freeze guard come from the catalogue's recipes of the
    same family. For an unknown family none is guessed. The command contacts no host.

    Exit codes: 0 written; 1 it fits no number of Sparks, or has an error; 2 wrong use, or the hub
    does not show it. With 1 and 2 nothing is written.
    """
    site = _find_site(inventory)
    knowledge = catalogues.load()
    accepted_licences = {
        licence for plan in site.plans for licence in plan.settings.accept_licences
    }
    knowledge = replace(
        knowledge, accepted_licences=knowledge.accepted_licences | accepted_licences
    )
    weights = site.read_weights(repository, engine)
    path = place.recipe_path(folder, place.recipe_name(name, weights.model), knowledge, site.plans)
    port = place.free_port(folder, knowledge, site.plans)
    today = datetime.date.today().isoformat()
    draft = RecipeText(weights, find_related(weights, knowledge), port, today, knowledge.knowledge)
    settings = find_settings(parse(recipe_text(draft), path), knowledge, site.machine)
    if isinstance(settings, Fit):
        draft_view.print_too_large(weights, settings)
        return FINDINGS
    draft = replace(draft, fitting=settings)
    text = recipe_text(draft)
    recipe = parse(text, path)
    hosts = settings.hosts if settings.hosts > 1 else None
    findings = check(recipe, knowledge, machine=site.machine, hosts=hosts)
    if has_errors(findings):
        print_findings(findings)
        click.echo(f"{path} was not written.")
        return FINDINGS
    _write(path, text)
    click.echo(f"{path}: {weights.at}, on {weights.engine.title}")
    draft_view.print_draft(draft, settings)
    print_findings(findings, with_subject=False)
    offer_binding(recipe, folder, site)
    return DONE


def _find_site(inventory: Path | None) -> Site:
    """Return the site of the named inventory, or of the one here unless that is broken.

    Raises:
        LockstepError: the named inventory is broken.
    """
    # The owner's own folder is read without being named.
    empty_site = Site(folders={Path("recipes").resolve()})
    try:
        path = find_inventory(inventory)
    except LockstepError:
        if inventory:
            raise
        return empty_site
    try:
        return site_of(path)
    except LockstepError as fault:
        if inventory:
            raise
        click.echo(
            paragraph(f"{path} is wrong, so its Sparks do not count here: {fault}"), err=True
        )
        return empty_site


def _write(path: Path, text: str) -> None:
    with LockstepError.instead("the recipe cannot be written", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Mode "x" keeps a file that appeared meanwhile.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
