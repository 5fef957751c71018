"""Inventories read as pyinfra reads them, but without contacting a host, and checked whole."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from lockstep.core import product
from lockstep.core.errors import InventoryError, LockstepError, Mistakes, raise_all
from lockstep.inventory import pyinfra_keys
from lockstep.inventory.bound_targets import bind, check_licences, check_tools
from lockstep.inventory.cluster_join import joined
from lockstep.inventory.host import HostPlan
from lockstep.inventory.inventory_names import refuse_groups, refuse_ignored
from lockstep.inventory.settings import Settings
from lockstep.inventory.settings_check import check_values
from lockstep.onhost.core import schema
from lockstep.recipes.recipe_file import load_catalogue

LOCK_SUFFIX = ".lock.yaml"
REPOSITORY = Path(__file__).resolve().parents[2]
_SHARED_FOLDER = "inventories"
_RECIPES = "recipes"
Host = tuple[str, Mapping[str, Any]]


def folder_of(path: Path) -> Path:
    """The owner's folder: the one that an inventory file is in, or that its `inventories` is in.

    All that people write is there: the lock, group data, recipes, `deploy.py`.
    """
    folder = path.absolute().parent
    return folder.parent if folder.name == _SHARED_FOLDER else folder


def group_data(path: Path) -> dict[str, Any]:
    """What the hosts of an inventory file have in common; the defaults of Lockstep lowest."""
    return _shared(path)[0]


def refuse_wrong_groups(path: Path, names: Mapping[str, Any], hosts: Sequence[Host]) -> None:
    """As `refuse_groups`, with the group data of the owner's folder."""
    refuse_groups(path, names, [name for name, _ in hosts], folder_of(path) / "group_data")


def load(path: Path) -> tuple[HostPlan, ...]:
    """Every host of an inventory file, without contacting one. InventoryError for wrong data."""
    return read(path, _listed(path))


def load_merged(path: Path) -> tuple[tuple[HostPlan, ...], dict[str, dict[str, Any]]]:
    """As `load`, and each host's whole data by name: pyinfra's own keys included, not checked."""
    hosts = _listed(path)
    shared, _ = _shared(path)
    return read(path, hosts), {name: {**shared, **data} for name, data in hosts}


def _listed(path: Path) -> list[Host]:
    names = _execute(path)
    hosts = names.get(path.stem, names.get("all"))
    if isinstance(hosts, tuple):
        hosts = hosts[0]
    if not isinstance(hosts, list) or not hosts:
        raise InventoryError(
            f"the inventory defines no list of hosts named {path.stem!r}",
            where=str(path),
            remedy=f"End it with `{path.stem} = checked(__file__, [(ADDRESS, {{…}}), …])`.",
        )
    listed = [host if isinstance(host, tuple) else (host, {}) for host in hosts]
    refuse_wrong_groups(path, names, listed)
    return listed


def read(path: Path, hosts: Sequence[Host]) -> tuple[HostPlan, ...]:
    """Merge group data into each host as pyinfra does, and check the result."""
    names = [name for name, _ in hosts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InventoryError("a host is listed twice", where=str(path), found=", ".join(twice))
    module = tree(path)
    _refuse_double_keys(path, module)
    refuse_ignored(path, module, _keys())
    shared, _ = _shared(path)
    origins = _origins(path, hosts)
    folder = folder_of(path)
    plans: list[HostPlan] = []
    faults: list[LockstepError] = []
    for name, data in hosts:
        try:
            plans.append(plan(name, {**shared, **data}, origins[name], folder))
        except LockstepError:
            # Where each key stands is looked for only now.
            lines = {key: _place(path, name, key, file) for key, file in origins[name].items()}
            faults += _faults(name, {**shared, **data}, lines, folder)
    raise_all(faults)
    return joined(plans, path.name)


def _faults(
    name: str, data: Mapping[str, Any], lines: Mapping[str, str], folder: Path
) -> Sequence[LockstepError]:
    try:
        plan(name, data, lines, folder)
    except Mistakes as found:
        return found.every
    except LockstepError as fault:
        return [fault]
    return []


def _place(path: Path, host: str, key: str, file: str) -> str:
    """A file, and the line at which it sets a key of a host where that is clear."""
    if file != path.name:
        own = folder_of(path) / file
        module = tree(own if own.exists() else product.DEFAULTS)
        names = [node for node in ast.walk(module) if isinstance(node, ast.Name)]
        lines = [
            each.lineno for each in names if each.id == key and isinstance(each.ctx, ast.Store)
        ]
        return f"{file}:{lines[-1]}" if lines else file
    module = tree(path)
    of_host = [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Tuple)
        and node.elts
        and isinstance(node.elts[0], ast.Constant)
        and node.elts[0].value == host
    ]
    # The host's own mapping first; of what hosts share only what is set once.
    for inside in (*of_host, module):
        mappings = (node for node in ast.walk(inside) if isinstance(node, ast.Dict))
        lines = [
            each.lineno
            for mapping in mappings
            for each in mapping.keys
            if isinstance(each, ast.Constant) and each.value == key
        ]
        if lines and (inside is not module or len(lines) == 1):
            return f"{file}:{lines[0]}"
    return file


def origins(path: Path) -> dict[str, dict[str, str]]:
    """Host → key of its data → the file that gives it."""
    return _origins(path, _listed(path))


def _origins(path: Path, hosts: Sequence[Host]) -> dict[str, dict[str, str]]:
    _, shared = _shared(path)
    return {name: {**shared, **dict.fromkeys(data, path.name)} for name, data in hosts}


def _shared(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Data of all hosts of an inventory, and the file that gave each key."""
    shared: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for file in _shared_files(path):
        values = _group_data(file)
        shared |= values
        origin |= dict.fromkeys(values, _file_name(file))
    return shared, origin


def _shared_files(path: Path) -> list[Path]:
    """Files of group data that are there: Lockstep's defaults, then the owner's."""
    folder = folder_of(path) / "group_data"
    every = (product.DEFAULTS, folder / "all.py", folder / f"{path.stem}.py")
    # A checkout's own are the defaults.
    return [file for file in dict.fromkeys(every) if file.exists()]


def _file_name(file: Path) -> str:
    """A file of group data as messages name it."""
    return f"{file.parent.name}/{file.name}"


def lock_path(path: Path, plans: Sequence[HostPlan]) -> Path:
    """The lock file of an inventory file, or the one that its hosts name alike."""
    named = {plan.settings.lock: plan.name for plan in plans}
    if len(named) > 1:
        (one, first), (other, second) = list(named.items())[:2]
        raise InventoryError(
            "the hosts of one inventory have one lock",
            where=f"{first}, {second}",
            found=f"lock {one!r} and {other!r}",
            remedy="Give all of them the same `lock`, or put them into two inventories.",
        )
    file = next(iter(named), None)
    return folder_of(path) / (file or f"{path.stem}{LOCK_SUFFIX}")


def plan(
    name: str,
    data: Mapping[str, Any],
    origin: Mapping[str, str] | None = None,
    folder: Path = REPOSITORY,
) -> HostPlan:
    """One host's merged data, checked; its clusters are not joined yet (`cluster_join`).

    Args:
        name: The host.
        data: Merged data; pyinfra's own keys are skipped.
        origin: Key → file that gave it, for errors.
        folder: The owner's folder.

    Raises:
        InventoryError: every key that is unknown or has a wrong value; else as, `check_values` and
            `bind` say.
        RecipeError: a recipe of the catalogue is wrong.
    """
    origin = origin or {}
    known = _keys()
    ours = {key: value for key, value in data.items() if key not in pyinfra_keys.KEYS}
    values: dict[str, Any] = {}
    faults: list[LockstepError] = []
    for key, value in ours.items():
        where = origin.get(key, name)
        try:
            if key not in known:
                meant = pyinfra_keys.alike(key, known)
                raise schema.unknown_key(key, meant, where=where, error=InventoryError)
            hint = schema.hints(Settings)[key]
            values[key] = schema.convert(hint, value, where=where, key=key, error=InventoryError)
        except LockstepError as fault:
            faults.append(fault)
    raise_all(faults)
    if "targets" not in values:
        raise InventoryError("targets is missing", where=name, remedy="Bind a recipe to a name.")
    hint = schema.hints(Settings)["name"]
    schema.convert(hint, name, where=name, key="a host's name", error=InventoryError)
    settings = Settings(name=name, **values)
    check_values(settings, origin, data.get("ssh_user"))
    catalogue = load_catalogue(*recipe_folders(settings, folder))
    targets = bind(settings, catalogue, origin)
    check_tools(settings, origin)
    check_licences(settings, catalogue, origin)
    return HostPlan(name, settings, targets, names=_names(settings, data.get("ssh_hostname")))


def recipe_folders(settings: Settings, folder: Path) -> Collection[Path]:
    """Folders whose recipes a host knows: Lockstep's, the owner's, those that the inventory names.

    `folder` is the owner's.
    """
    own = folder / _RECIPES
    named = (folder / name for name in settings.recipe_folders)
    every = (product.CATALOGUE / "recipes", *((own,) if own.is_dir() else ()), *named)
    # One that is named although it is always read.
    return tuple(dict.fromkeys(path.resolve() for path in every))


def _names(settings: Settings, login: str | None) -> tuple[str, ...]:
    """What other machines may call the host: see `HostPlan.names`."""
    gateway = settings.gateway
    bind = () if gateway.bind in ("0.0.0.0", "::") else (gateway.bind,)
    # "@local" is no name for others.
    named = (name.lower() for name in (settings.name, login, *bind, *gateway.names) if name)
    return tuple(dict.fromkeys(name for name in named if not name.startswith("@")))


def _keys() -> set[str]:
    """Every key that host data may have, but for pyinfra's own."""
    return {item.name for item in fields(Settings)} - {"name"}


def _group_data(path: Path) -> dict[str, Any]:
    module = tree(path)
    _refuse_double_keys(path, module)
    imported = {
        (alias.asname or alias.name).split(".")[0]: node.lineno
        for node in module.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for name in sorted(_keys().intersection(imported)):
        raise InventoryError(
            f"{name!r} is imported, and pyinfra drops names that are",
            where=f"{path.parent.name}/{path.name}:{imported[name]}",
            remedy=f"Import it under another name: `import {name} as _{name}`.",
        )
    values = _execute(path)
    return {
        key: value
        for key, value in values.items()
        if key not in imported and not pyinfra_keys.is_private(key)
    }


def _execute(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InventoryError("the file does not exist", where=str(path))
    tree(path)
    try:
        return runpy.run_path(str(path))
    except LockstepError:
        raise
    except Exception as fault:
        raise InventoryError(
            "the file fails when it is read",
            where=str(path),
            found=f"{type(fault).__name__}: {fault}",
        ) from fault


def tree(path: Path) -> ast.Module:
    """A Python file read. InventoryError where it is not Python, or not UTF-8."""
    try:
        return _parsed(path.read_text(encoding="utf-8"), str(path))
    except SyntaxError as fault:
        raise InventoryError(
            f"not valid Python: {fault.msg}",
            where=f"{path.name}:{fault.lineno}" if fault.lineno else path.name,
        ) from fault
    except UnicodeDecodeError as fault:
        raise InventoryError("the file is not UTF-8 text", where=str(path)) from fault


@cache
def _parsed(text: str, filename: str) -> ast.Module:
    """Group data are read several times by one command."""
    module = ast.parse(text, filename=filename)
    # Some faults are found only here: a `return` outside a function.
    compile(module, filename, "exec")
    return module


def _refuse_double_keys(path: Path, module: ast.Module) -> None:
    """Python keeps the last of two equal keys in silence; a target bound twice must not pass."""
    for mapping in (node for node in ast.walk(module) if isinstance(node, ast.Dict)):
        seen: set[object] = set()
        for key in (key for key in mapping.keys if isinstance(key, ast.Constant)):
            if key.value in seen:
                raise InventoryError(
                    f"key {key.value!r} stands twice in one mapping",
                    where=f"{path.name}:{key.lineno}",
                    remedy="Keep one of them; a target can be bound only once.",
                )
            seen.add(key.value)
