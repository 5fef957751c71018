"""A target written into the `targets` of a Python file, where that can be done without a doubt."""

from __future__ import annotations

import ast
from pathlib import Path

from lockstep.core.errors import InventoryError
from lockstep.inventory.inventory_file import load, tree

_KEY = "targets"
# The second is how an inventory may call what its hosts share.
_NAMES = {_KEY, f"_{_KEY}"}


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
