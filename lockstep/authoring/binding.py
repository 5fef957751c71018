"""The lines that bind a recipe, and one of them written into a file where no doubt is left."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.authoring.site import Site
from lockstep.core.errors import InventoryError
from lockstep.inventory.host import HostPlan
from lockstep.inventory.inventory_file import folder_of, load, tree
from lockstep.recipes.recipe_file import Recipe

_KEY = "targets"
# The second is how an inventory may call what its hosts share.
_NAMES = {_KEY, f"_{_KEY}"}
#: Where all Sparks have their targets, unless an inventory says otherwise.
USUAL_FILE = "group_data/all.py"
# The defaults of an installation, which nobody edits: a key that is set replaces them as a whole.
_INSTALLED = "lockstep/defaults.py"


@dataclass(frozen=True)
class InventoryLine:
    """A line for a file of the inventory.

    Attributes:
        file: The file, for people.
        key: The key there that it belongs to.
        text: The line.
    """

    file: str
    key: str
    text: str


def inventory_lines(recipe: Recipe, folder: Path, site: Site) -> list[InventoryLine]:
    """The lines that bind a recipe of a folder, in the order in which they are to be written."""
    found, file = [], site.files.get("targets", USUAL_FILE)
    if folder.resolve() not in site.folders:
        before = site.plans[0].settings.recipe_folders if site.plans else ()
        words = " ".join(f'"{each}",' for each in (*before, _path_text(folder, site.home)))
        where = site.files.get("recipe_folders", file)
        shared = where.startswith("group_data")
        text = f"recipe_folders = ({words})" if shared else f'"recipe_folders": ({words}),'
        found.append(InventoryLine(where, "recipe_folders", text))
    line = _target_line(recipe, site.plans)
    if file == _INSTALLED:
        imported = "from lockstep.defaults import targets as _targets"
        line, file = f"{imported}\n    targets = {{**_targets, {line}}}", USUAL_FILE
    return [*found, InventoryLine(file, "targets", line)]


def _target_line(recipe: Recipe, plans: Sequence[HostPlan]) -> str:
    """An entry of `targets`; of several hosts with a cluster of that size, where there is one."""
    name = re.sub(r"[^a-z0-9_-]+", "-", recipe.name)
    unit = f"{recipe.engine.name if recipe.engine else 'engine'}-{name}"[:64].rstrip("-")
    clusters = plans[0].settings.clusters if plans else {}
    large = (each for each in clusters if len(clusters[each].hosts) == recipe.min_nodes)
    named = next(large, "NAME")
    cluster = f', "cluster": "{named}"' if recipe.min_nodes > 1 else ""
    return f'"{name}": {{"recipe": "{recipe.name}", "unit": "{unit}"{cluster}}},'


def _path_text(folder: Path, home: Path) -> str:
    """A folder as the inventory may name it: relative to the owner's, where it is inside."""
    absolute, home = folder.resolve(), home.resolve()
    return str(absolute.relative_to(home) if absolute.is_relative_to(home) else absolute)


def file_of(line: InventoryLine, inventory: Path) -> Path | None:
    """The file of a line, None where the owner has none of that name."""
    path = inventory if line.file == inventory.name else folder_of(inventory) / line.file
    return path if path.is_file() else None


def with_target(path: Path, line: str) -> str | None:
    """The text of a file with one more entry in its only literal mapping `targets`, else None.

    InventoryError for a file that is not Python.
    """
    found = list(_mappings(tree(path)))
    if len(found) != 1 or not found[0].values:
        return None
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    last, mapping = found[0].values[-1], found[0]
    end, close = last.end_lineno, mapping.end_lineno
    if end is None or close is None or end == close or lines[close - 1].strip()[:1] != "}":
        return None
    # Columns of the tree are bytes.
    raw = lines[end - 1].encode()
    before, after = raw[: last.end_col_offset].decode(), raw[last.end_col_offset :].decode()
    if not after.lstrip().startswith(","):
        after = "," + after
    key = mapping.keys[-1]
    indent = " " * (key.col_offset if key else last.col_offset)
    new = [*lines[: end - 1], before + after, *lines[end : close - 1], f"{indent}{line}\n"]
    return "".join([*new, *lines[close - 1 :]])


def bind(path: Path, text: str, inventory: Path) -> str:
    """Write a file of an inventory, and take that back where the inventory is refused with it.

    Returns:
        Why it was refused, "" where it was not.
    """
    before = path.read_bytes()
    with InventoryError.instead("the file cannot be written", path):
        path.write_text(text, encoding="utf-8")
    try:
        load(inventory)
    except BaseException as fault:
        path.write_bytes(before)
        if not isinstance(fault, Exception):
            raise
        return str(fault)
    return ""


def _mappings(module: ast.Module) -> list[ast.Dict]:
    """Literal mappings of the name, or of the key, `targets`."""
    found: list[ast.expr] = []
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            names = [each.id for each in node.targets if isinstance(each, ast.Name)]
            found += [node.value] if _NAMES & set(names) else []
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found += [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == _KEY]
    return [each for each in found if isinstance(each, ast.Dict)]
