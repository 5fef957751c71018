"""The name, the file and the port of a new recipe."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from lockstep.core.errors import LockstepError, RecipeError
from lockstep.fit.catalogue import Catalogue
from lockstep.inventory.bound_targets import DASHBOARD_PORT, ENGINE_PORT_OFFSET
from lockstep.inventory.host import HostPlan
from lockstep.recipes.recipe_file import Recipe, load
from lockstep.recipes.sizing import serving

# The catalogue's begin here. Above are the ports behind doors of the gateway.
_PORTS = range(30000, 31000)


def recipe_name(given: str | None, model: str) -> str:
    """The name that is given, else the model's in letters that a target may have.

    RecipeError for one that no file of a recipe may have.
    """
    usual = re.sub(r"[^a-z0-9.]+", "-", model.rpartition("/")[2].lower()).strip("-.")
    name = given or usual
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise RecipeError(
            "this is no name of a recipe",
            found=repr(name),
            allowed="lower-case letters, digits, '.', '-' and '_'",
            remedy="Choose one with --name.",
        )
    return name


def recipe_path(folder: Path, name: str, catalogue: Catalogue, plans: Sequence[HostPlan]) -> Path:
    """The file that is to be written. RecipeError where that name is taken."""
    path = folder / f"{name}.yaml"
    others = [catalogue.recipes[name].path] if name in catalogue.recipes else []
    others += [each.path for each in _of(plans) if each.name == name]
    taken = path if path.exists() else next(iter(others), None)
    if taken is not None:
        raise RecipeError(
            f"a recipe of the name {name!r} is there already",
            where=str(taken),
            remedy="Choose another name with --name.",
        )
    return path


def free_port(folder: Path, catalogue: Catalogue, plans: Sequence[HostPlan]) -> int:
    """A port that no recipe and no target known here has, nor an engine behind one's door."""
    recipes = [*catalogue.recipes.values(), *_of(plans), *_readable(folder)]
    taken = {DASHBOARD_PORT}
    for recipe in recipes:
        with contextlib.suppress(RecipeError):
            taken.add(serving(recipe).port or 0)
    taken |= {port for plan in plans for target in plan.targets for port in target.ports}
    behind = {port + ENGINE_PORT_OFFSET for port in taken}
    ports = (port for port in _PORTS if not {port, port + ENGINE_PORT_OFFSET} & (taken | behind))
    return next(ports)


def _of(plans: Iterable[HostPlan]) -> list[Recipe]:
    return [recipe for plan in plans for target in plan.targets for recipe in target.recipes]


def _readable(folder: Path) -> list[Recipe]:
    """The recipes of a folder; a broken one is told by other commands."""
    found = []
    for path in sorted(folder.glob("*.yaml")):
        with contextlib.suppress(LockstepError):
            found.append(load(path))
    return found
