"""Where a new recipe goes: its name, its port, and the lines of the inventory that bind it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.core.errors import LockstepError, RecipeError
from lockstep.fit.catalogue import Catalogue
from lockstep.inventory.bound_targets import DASHBOARD_PORT, ENGINE_PORT_OFFSET
from lockstep.inventory.host import HostPlan
from lockstep.inventory.inventory_file import REPOSITORY
from lockstep.recipes.recipe_file import Recipe, load
from lockstep.recipes.sizing import serving

#: Where all Sparks have their targets, unless an inventory says otherwise.
USUAL_FILE = "group_data/all.py"
# The defaults of an installation, which nobody edits: a key that is set replaces them as a whole.
_INSTALLED = "lockstep/defaults.py"
# The catalogue's begin here. Above are the ports behind doors of the gateway.
_PORTS = range(30000, 31000)


@dataclass(frozen=True)
class Line:
    """A line for a file of the inventory.

    Attributes:
        file: The file, for people.
        key: The key there that it belongs to.
        text: The line.
    """

    file: str
    key: str
    text: str


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


def lines(
    recipe: Recipe,
    folder: Path,
    plans: Sequence[HostPlan],
    files: Mapping[str, str],
    known: Collection[Path],
) -> list[Line]:
    """The lines that bind a recipe, in the order in which they are to be written.

    Args:
        recipe: The recipe, of a file in `folder`.
        folder: Its folder.
        plans: The hosts of the inventory, () where none is known.
        files: Key of their data → the file that gives it.
        known: Folders of recipes that the inventory reads already.
    """
    found, file = [], files.get("targets", USUAL_FILE)
    if folder.resolve() not in known:
        before = plans[0].settings.recipe_folders if plans else ()
        words = " ".join(f'"{each}",' for each in (*before, _path_text(folder)))
        where = files.get("recipe_folders", file)
        shared = where.startswith("group_data")
        text = f"recipe_folders = ({words})" if shared else f'"recipe_folders": ({words}),'
        found.append(Line(where, "recipe_folders", text))
    line = target_line(recipe, plans)
    if file == _INSTALLED:
        imported = "from lockstep.defaults import targets as _targets"
        return [
            *found,
            Line(USUAL_FILE, "targets", f"{imported}\n    targets = {{**_targets, {line}}}"),
        ]
    return [*found, Line(file, "targets", line)]


def target_line(recipe: Recipe, plans: Sequence[HostPlan] = ()) -> str:
    """An entry of `targets`; of several hosts with a cluster of that size, where there is one."""
    name = re.sub(r"[^a-z0-9_-]+", "-", recipe.name)
    unit = f"{recipe.engine.name if recipe.engine else 'engine'}-{name}"[:64].rstrip("-")
    clusters = plans[0].settings.clusters if plans else {}
    large = (each for each in clusters if len(clusters[each].hosts) == recipe.min_nodes)
    named = next(large, "NAME")
    cluster = f', "cluster": "{named}"' if recipe.min_nodes > 1 else ""
    return f'"{name}": {{"recipe": "{recipe.name}", "unit": "{unit}"{cluster}}},'


def _path_text(folder: Path) -> str:
    absolute = folder.resolve()
    inside = absolute.is_relative_to(REPOSITORY)
    return str(absolute.relative_to(REPOSITORY) if inside else absolute)


def _of(plans: Iterable[HostPlan]) -> list[Recipe]:
    return [recipe for plan in plans for target in plan.targets for recipe in target.recipes]


def _readable(folder: Path) -> list[Recipe]:
    """The recipes of a folder; a broken one is told by other commands."""
    found = []
    for path in sorted(folder.glob("*.yaml")):
        with contextlib.suppress(LockstepError):
            found.append(load(path))
    return found
