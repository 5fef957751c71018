"""The name, the file and the port of a new recipe."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from lockstep.core.errors import LockstepError, RecipeError
from lockstep.fit.catalogue import Catalogue
from lockstep.inventory.bound_models import DASHBOARD_PORT, ENGINE_PORT_OFFSET
from lockstep.inventory.host import HostPlan
from lockstep.recipes.recipe_file import Recipe, load
from lockstep.recipes.sizing import serving

# The catalogue's ports begin here. The ports above belong to engines behind the gateway.
_PORTS = range(30000, 31000)


def recipe_name(wanted_name: str | None, model: str) -> str:
    """Return the wanted name, or the model's name in letters that a model may have.

    Raises:
        RecipeError: the name cannot be that of a recipe file.
    """
    usual = re.sub(r"[^a-z0-9.]+", "-", model.rpartition("/")[2].lower()).strip("-.")
    name = wanted_name or usual
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise RecipeError(
            "this is no name of a recipe",
            found=repr(name),
            allowed="lower-case letters, digits, '.', '-' and '_'",
            remedy="Choose one with --name.",
        )
    return name


def recipe_path(folder: Path, name: str, catalogue: Catalogue, plans: Sequence[HostPlan]) -> Path:
    """Return the path of the new recipe.

    Raises:
        RecipeError: the name is taken.
    """
    path = folder / f"{name}.yaml"
    paths = [catalogue.recipes[name].path] if name in catalogue.recipes else []
    paths += [recipe.path for recipe in _of(plans) if recipe.name == name]
    target_path = path if path.exists() else next(iter(paths), None)
    if target_path is not None:
        raise RecipeError(
            f"a recipe of the name {name!r} is there already",
            where=str(target_path),
            remedy="Choose another name with --name.",
        )
    return path


def free_port(folder: Path, catalogue: Catalogue, plans: Sequence[HostPlan]) -> int:
    """Return a port that no known recipe or model uses, nor an engine behind the gateway."""
    recipes = [*catalogue.recipes.values(), *_of(plans), *_readable(folder)]
    used_ports = {DASHBOARD_PORT}
    for recipe in recipes:
        with contextlib.suppress(RecipeError):
            used_ports.add(serving(recipe).port or 0)
    used_ports |= {port for plan in plans for model in plan.models for port in model.ports}
    behind = {port + ENGINE_PORT_OFFSET for port in used_ports}
    ports = (
        port for port in _PORTS if not {port, port + ENGINE_PORT_OFFSET} & (used_ports | behind)
    )
    return next(ports)


def _of(plans: Iterable[HostPlan]) -> list[Recipe]:
    return [recipe for plan in plans for model in plan.models for recipe in model.recipes]


def _readable(folder: Path) -> list[Recipe]:
    """Return the recipes of a folder without broken ones, which other commands report."""
    recipes = []
    for path in sorted(folder.glob("*.yaml")):
        with contextlib.suppress(LockstepError):
            recipes.append(load(path))
    return recipes
