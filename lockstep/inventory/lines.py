"""The line of an inventory, or of group data, at which a key of a host's data stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# The start of a fault about a key: "models.qwen.port …", "unknown key 'prot' in webui".
_KEY = re.compile(r"(?:unknown key '([\w-]+)' in )?(\w+(?:\.[\w-]+)*)")


def line_of_key(source: Path, host: str, key: str) -> int | None:
    """Return the line at which an inventory sets a key of a host, where that is clear."""
    module = _module(source)
    own = (
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Tuple)
        and node.elts
        and isinstance(node.elts[0], ast.Constant)
        and node.elts[0].value == host
    )
    # The host's own mapping comes first. Shared data counts only where it sets the key once.
    for inside in (*own, module):
        lines = [line for line, name, _ in _entries(inside) if name == key]
        if lines and (inside is not module or len(lines) == 1):
            return lines[0]
    return None


def lines_of_hosts(module: ast.Module, name: str) -> list[int]:
    """Return the lines of the hosts in an inventory, where the list of that name is written out."""
    lists = [
        [elt.lineno for elt in node.elts]
        for _, assigned_name, value in _assignments(module)
        if assigned_name == name
        for node in (value, *(value.args if isinstance(value, ast.Call) else ()))
        if isinstance(node, ast.List)
    ]
    return lists[-1] if lists else []


def line_of_name(source: Path, name: str) -> int | None:
    """Return the last line at which a file of group data assigns a name."""
    lines = [
        node.lineno
        for node in ast.walk(_module(source))
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]
    return lines[-1] if lines else None


def line_of_part(source: Path, line: int, fault: str) -> int:
    """Return the line of the part of a key's value that a fault names, if it is written out.

    Args:
        source: The file.
        line: The line of the key.
        fault: The fault's sentence.
    """
    match = _KEY.match(fault)
    if not match:
        return line
    first, *later_parts = match[2].split(".")
    later_parts += [match[1]] if match[1] else []
    module = _module(source)
    every = (*_entries(module), *_assignments(module))
    value = next((value for at, key, value in every if (at, key) == (line, first)), None)
    for key in later_parts:
        entries = _entries_of(value) if isinstance(value, ast.Dict) else ()
        line, value = next(((at, node) for at, name, node in entries if name == key), (line, None))
    return line


def _module(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"))


def _entries(inside: ast.AST) -> Iterator[tuple[int, object, ast.expr]]:
    """Yield line, key and value of each entry of every mapping."""
    for node in ast.walk(inside):
        if isinstance(node, ast.Dict):
            yield from _entries_of(node)


def _entries_of(mapping: ast.Dict) -> Iterator[tuple[int, object, ast.expr]]:
    for key, value in zip(mapping.keys, mapping.values, strict=True):
        if isinstance(key, ast.Constant):
            yield key.lineno, key.value, value


def _assignments(module: ast.Module) -> Iterator[tuple[int, object, ast.expr]]:
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.lineno, node.targets[0].id, node.value
