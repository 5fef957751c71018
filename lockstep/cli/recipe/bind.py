"""The binding of a new recipe to a model if a person agrees; else the lines to type."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lockstep.authoring import binding
from lockstep.authoring.site import Site
from lockstep.core.errors import paragraph
from lockstep.recipes.recipe_file import Recipe


def offer_binding(recipe: Recipe, folder: Path, site: Site) -> None:
    """Bind the recipe if a person can be asked and agrees and the file is plain; else say how."""
    lines = binding.inventory_lines(recipe, folder, site)
    alone = len(lines) == 1 and recipe.min_nodes == 1
    if site.inventory and alone and _can_ask() and _agree_to_bind(lines[0], site.inventory):
        click.echo("Bound. `lockstep plan` shows it; then deploy.")
        return
    for line in lines:
        click.echo(f"\nTo bind it, in {line.file}, at {line.key}:\n    {line.text}")
    if recipe.min_nodes > 1:
        click.echo(f"Its cluster has {recipe.min_nodes} Sparks: `lockstep help cluster`.")


def _agree_to_bind(line: binding.InventoryLine, inventory: Path) -> bool:
    """Ask for permission, and write the line into its file; tell whether it was written."""
    path = binding.file_of(line, inventory)
    text = binding.with_model(path, line.text) if path else None
    if not path or not text:
        return False
    try:
        is_agreed = click.confirm(f"\nBind it in {path}, with this line?\n    {line.text}\n")
    except click.Abort:
        # The recipe is written by now, so the lines to type are still of use.
        click.echo()
        is_agreed = False
    refusal = binding.bind(path, text, inventory) if is_agreed else ""
    if refusal:
        click.echo(paragraph(f"{path} is as it was, because with this line: {refusal}"))
    return is_agreed and not refusal


def _can_ask() -> bool:
    return sys.stdin.isatty()
