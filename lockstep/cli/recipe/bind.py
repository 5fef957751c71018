"""A new recipe bound to a target, where a person agrees; else the lines to type."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lockstep.authoring import binding
from lockstep.authoring.site import Site
from lockstep.core.errors import paragraph
from lockstep.recipes.recipe_file import Recipe


def offer_binding(written: Recipe, folder: Path, site: Site) -> None:
    """Bind it where somebody can be asked, says yes, and the file is plain; else say how."""
    lines = binding.inventory_lines(written, folder, site)
    alone = len(lines) == 1 and written.min_nodes == 1
    if site.inventory and alone and _can_ask() and _agree_to_bind(lines[0], site.inventory):
        click.echo("Bound. `lockstep plan` shows it; then deploy.")
        return
    for line in lines:
        click.echo(f"\nTo bind it, in {line.file}, at {line.key}:\n    {line.text}")
    if written.min_nodes > 1:
        click.echo(f"Its cluster has {written.min_nodes} Sparks: `lockstep help cluster`.")


def _agree_to_bind(line: binding.InventoryLine, inventory: Path) -> bool:
    """Ask, and write the line into its file; whether it stands there now."""
    path = binding.file_of(line, inventory)
    text = binding.with_target(path, line.text) if path else None
    if not path or not text:
        return False
    try:
        agreed = click.confirm(f"\nBind it in {path}, with this line?\n    {line.text}\n")
    except click.Abort:
        # The recipe is written, so the lines are of use.
        click.echo()
        agreed = False
    refusal = binding.bind(path, text, inventory) if agreed else ""
    if refusal:
        click.echo(paragraph(f"{path} is as it was, because with this line: {refusal}"))
    return agreed and not refusal


def _can_ask() -> bool:
    return sys.stdin.isatty()
