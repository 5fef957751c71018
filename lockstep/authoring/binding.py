"""The lines that bind a recipe to an inventory, and the writing of one into an inventory's file."""

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

_KEY = "models"
# An inventory may give the shared value the name with the underscore.
_NAMES = {_KEY, f"_{_KEY}"}
#: The file that holds the models of all Sparks, unless an inventory says otherwise.
USUAL_FILE = "group_data/all.py"
# Nobody edits these defaults of an installation. A key set in the inventory replaces them whole.
_INSTALLED = "lockstep/defaults.py"


@dataclass(frozen=True)
class InventoryLine:
    """A line for a file of the inventory.

    Attributes:
        file: Name of the file, as people see it.
        key: The key in that file to which the line belongs.
        text: The line.
    """

    file: str
    key: str
    text: str


def inventory_lines(recipe: Recipe, folder: Path, site: Site) -> list[InventoryLine]:
    """Return the lines that bind a recipe of a folder, in the order of their writing."""
    model_lines, file = [], site.files.get("models", USUAL_FILE)
    if folder.resolve() not in site.folders:
        earlier_folders = site.plans[0].settings.recipe_folders if site.plans else ()
        words = " ".join(
            f'"{folder_name}",' for folder_name in (*earlier_folders, _path_text(folder, site.home))
        )
        where = site.files.get("recipe_folders", file)
        is_shared = where.startswith("group_data")
        text = f"recipe_folders = ({words})" if is_shared else f'"recipe_folders": ({words}),'
        model_lines.append(InventoryLine(where, "recipe_folders", text))
    line = _model_line(recipe, site.plans)
    if file == _INSTALLED:
        import_line = "from lockstep.defaults import models as _models"
        line, file = f"{import_line}\n    models = {{**_models, {line}}}", USUAL_FILE
    return [*model_lines, InventoryLine(file, "models", line)]


def _model_line(recipe: Recipe, plans: Sequence[HostPlan]) -> str:
    """Return an entry of `models`; for several hosts with a cluster of that size, if any."""
    name = re.sub(r"[^a-z0-9_-]+", "-", recipe.name)
    unit = f"{recipe.engine.name if recipe.engine else 'engine'}-{name}"[:64].rstrip("-")
    clusters = plans[0].settings.clusters if plans else {}
    large = (
        cluster_name
        for cluster_name in clusters
        if len(clusters[cluster_name].hosts) == recipe.min_nodes
    )
    model_name = next(large, "NAME")
    cluster = f', "cluster": "{model_name}"' if recipe.min_nodes > 1 else ""
    return f'"{name}": {{"recipe": "{recipe.name}", "unit": "{unit}"{cluster}}},'


def _path_text(folder: Path, home: Path) -> str:
    """Return the folder's name for the inventory, relative if inside the owner's folder."""
    absolute, home = folder.resolve(), home.resolve()
    return str(absolute.relative_to(home) if absolute.is_relative_to(home) else absolute)


def file_of(line: InventoryLine, inventory: Path) -> Path | None:
    """Return the file to which a line belongs, or None if the owner has no file of that name."""
    path = inventory if line.file == inventory.name else folder_of(inventory) / line.file
    return path if path.is_file() else None


def with_model(path: Path, line: str) -> str | None:
    """Return a file's text with one more entry in its only literal mapping `models`, or None.

    Raises:
        InventoryError: the file is not Python.
    """
    mappings = list(_mappings(tree(path)))
    if len(mappings) != 1 or not mappings[0].values:
        return None
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    last, mapping = mappings[0].values[-1], mappings[0]
    end, close = last.end_lineno, mapping.end_lineno
    if end is None or close is None or end == close or lines[close - 1].strip()[:1] != "}":
        return None
    # The columns of an AST node count bytes, not characters.
    raw = lines[end - 1].encode()
    head, tail = raw[: last.end_col_offset].decode(), raw[last.end_col_offset :].decode()
    if not tail.lstrip().startswith(","):
        tail = "," + tail
    key = mapping.keys[-1]
    indent = " " * (key.col_offset if key else last.col_offset)
    new = [*lines[: end - 1], head + tail, *lines[end : close - 1], f"{indent}{line}\n"]
    return "".join([*new, *lines[close - 1 :]])


def bind(path: Path, text: str, inventory: Path) -> str:
    """Write a file of an inventory, and restore the old content if the inventory is then refused.

    Returns:
        The reason of the refusal, or "" if the inventory was accepted.
    """
    old_bytes = path.read_bytes()
    with InventoryError.instead("the file cannot be written", path):
        path.write_text(text, encoding="utf-8")
    try:
        load(inventory)
    except BaseException as fault:
        path.write_bytes(old_bytes)
        if not isinstance(fault, Exception):
            raise
        return str(fault)
    return ""


def _mappings(module: ast.Module) -> list[ast.Dict]:
    """Return the literal mappings assigned to the name `models` or to the key `models`."""
    nodes: list[ast.expr] = []
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            nodes += [node.value] if _NAMES & set(names) else []
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            nodes += [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == _KEY]
    return [target for target in nodes if isinstance(target, ast.Dict)]
