"""Checks of an inventory file's names: unused ones, and ones that pyinfra would take for hosts.

pyinfra reads no host data from the names of an inventory file, and takes each public list or tuple
for a group of hosts (`pyinfra_cli/inventory.py`, 3.10). Lockstep reads one group, named like the
file. A further group may choose among its hosts, for `--limit`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from lockstep.core.errors import InventoryError, LockstepError, raise_all
from lockstep.onhost.core import schema

# These nodes give names to a scope of their own.
_SCOPES = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def refuse_ignored(path: Path, tree: ast.Module, keys: Collection[str]) -> None:
    """Refuse a file whose own names look like host data, or that goes on after `checked`."""
    checks = [node.lineno for node in tree.body if _calls_checked(node)]
    group = f"group_data/{path.stem}.py"
    faults: list[LockstepError] = []
    for statement in tree.body:
        for name, line in _bound_names(statement):
            if name in ("all", path.stem):
                continue
            where = f"{path.name}:{line}"
            new_name = schema.name_after_renaming(name, keys)
            if name in keys or new_name or name.startswith("ssh_"):
                key = new_name or name
                present = f", and it is called {key!r} now" if new_name else ""
                fault = InventoryError(
                    f"nothing reads {name!r} at the top of an inventory{present}",
                    where=where,
                    allowed=f"{key!r} in a host's mapping, {{{key!r}: …}}, or for all hosts in "
                    f"{group}",
                    remedy=f"A name that hosts share is private: `_{key}`, and then "
                    f"`{{{key!r}: _{key}}}` for each host.",
                )
                faults.append(fault)
            elif checks and statement.lineno > checks[-1] and not name.startswith("_"):
                fault = InventoryError(
                    f"{name!r} comes after `checked(…)`, which cannot look at it any more",
                    where=where,
                    remedy="Move it to the top of the file.",
                )
                faults.append(fault)
    raise_all(faults)


def refuse_groups(
    path: Path, names: Mapping[str, Any], hosts: Collection[str], folder: Path
) -> None:
    """Refuse a public list or tuple that pyinfra would take for other hosts than the file's.

    ``names`` are those that it defines or imports; ``folder`` is where group data is.
    """
    faults: list[LockstepError] = []
    for name, value in names.items():
        if name.startswith("_") or name in ("all", path.stem):
            continue
        if isinstance(value, tuple) or not _chooses(value, hosts):
            fault = InventoryError(
                f"pyinfra would take {name!r} for a group of hosts",
                where=path.name,
                found=_literal(value),
                allowed=f"one group of hosts, {path.stem!r}, and lists of some of its hosts",
                remedy=f"Call it `_{name}`"
                f" (`import … as _{name}`, where it is imported), or put the hosts into "
                f"{path.stem!r}.",
            )
            faults.append(fault)
        elif isinstance(value, list) and (folder / f"{name}.py").exists():
            fault = InventoryError(
                f"group_data/{name}.py is read by the deploy and by no other command",
                where=path.name,
                found=f"a group {name!r}",
                remedy=f"Put its data into the hosts' own mappings, or make {name!r} an inventory.",
            )
            faults.append(fault)
    raise_all(faults)


def _literal(value: Any) -> str:
    text = repr(value)
    # A host's data may be long, and hold a password.
    if isinstance(value, str) or any(isinstance(item, tuple | dict) for item in value):
        return f"a {type(value).__name__} of {len(value)}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _chooses(value: Any, hosts: Collection[str]) -> bool:
    """Tell whether a value is no group to pyinfra, or a group of hosts that the file has."""
    if not isinstance(value, list) or not all(isinstance(item, str | tuple) for item in value):
        return True
    return all((item[0] if isinstance(item, tuple) and item else item) in hosts for item in value)


def _calls_checked(statement: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Call)
        and (getattr(node.func, "id", "") or getattr(node.func, "attr", "")) == "checked"
        for node in ast.walk(statement)
    )


def _bound_names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that a statement assigns, with its line; imports are left out."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, node.lineno
    if not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _bound_names(child)
