"""Inventories read as pyinfra reads them, but without contacting a host, and checked whole."""

from __future__ import annotations

import ast
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from lockstep.core import product
from lockstep.core.errors import (
    InventoryError,
    LockstepError,
    gather_faults,
    joint_fault,
    raise_all,
)
from lockstep.files.managed_file import ManagedFile
from lockstep.inventory import lines, pyinfra_keys
from lockstep.inventory.bound_models import BoundModel, bind, check_licences, check_tools
from lockstep.inventory.cluster_join import check_agreement, join_clusters
from lockstep.inventory.extra_files import extra_files
from lockstep.inventory.gaps import settings_with_gaps
from lockstep.inventory.host import HostPlan
from lockstep.inventory.inventory_names import refuse_groups, refuse_ignored
from lockstep.inventory.refusals import Refusals, refuse
from lockstep.inventory.settings import FALLBACK, Settings
from lockstep.inventory.settings_check import check_values
from lockstep.onhost.core import schema
from lockstep.recipes.recipe_file import load_catalogue

LOCK_SUFFIX = ".lock.yaml"
#: Python's words about a name that the default data do not have.
_NO_DEFAULT = re.compile(
    r"cannot import name '(\w+)' from '(?:lockstep\.defaults|group_data\.all)'"
)
_SHARED_FOLDER = "inventories"
_RECIPES = "recipes"
Host = tuple[str, Mapping[str, Any]]
#: A check of one host's data, with the key that it is about.
Check = tuple[str, Callable[[Settings], Refusals]]
# Host → key of its data → the file and line that gives it.
_Where = Mapping[str, Mapping[str, str]]


def folder_of(path: Path) -> Path:
    """Return the owner's folder: that of an inventory file, or of the `inventories` it is in.

    All files that people write are there: the lock, group data, recipes, `deploy.py`.
    """
    folder = path.absolute().parent
    return folder.parent if folder.name == _SHARED_FOLDER else folder


def group_data(path: Path) -> dict[str, Any]:
    """Return the data that all hosts of an inventory file share, Lockstep's defaults lowest."""
    return _common_data(path)[0]


def load(path: Path) -> tuple[HostPlan, ...]:
    """Return every host of an inventory file, without contact. InventoryError for wrong data."""
    return read(path, *_hosts_of_file(path))


def load_merged(path: Path) -> tuple[tuple[HostPlan, ...], dict[str, dict[str, Any]]]:
    """Return the result of `load`, and each host's whole data by name, unchecked.

    The data includes pyinfra's own keys.
    """
    hosts, names = _hosts_of_file(path)
    plans = read(path, hosts, names)
    common_data, _ = _common_data(path)
    return plans, {name: {**common_data, **data} for name, data in hosts}


def _hosts_of_file(path: Path) -> tuple[list[Host], Mapping[str, Any]]:
    """Return the hosts of an inventory file, and every name that the file defines."""
    names = _execute(path)
    hosts = names.get(path.stem, names.get("all"))
    if isinstance(hosts, tuple) and hosts:
        hosts = hosts[0]
    if hosts == []:
        raise InventoryError(
            f"the list of hosts {path.stem if path.stem in names else 'all'!r} is empty",
            where=str(path),
            remedy="Add a host: (ADDRESS, {…}).",
        )
    if not isinstance(hosts, list):
        raise InventoryError(
            f"the inventory defines no list of hosts named {path.stem!r}",
            where=str(path),
            remedy=f"End it with `{path.stem} = checked(__file__, [(ADDRESS, {{…}}), …])`.",
        )
    return hosts_with_data(hosts), names


def hosts_with_data(hosts: Sequence[Any]) -> list[Host]:
    """Return hosts with their data; an entry that pyinfra takes for no host stays as it is."""
    return [(host, {}) if isinstance(host, str) else host for host in hosts]


def read(
    path: Path, hosts: Sequence[Host], names: Mapping[str, Any], checks: Sequence[Check] = ()
) -> tuple[HostPlan, ...]:
    """Merge group data into each host as pyinfra does, and check the result.

    Args:
        path: The inventory file.
        hosts: Its hosts.
        names: Names that the file defines, as far as it is executed.
        checks: More checks of each host's data.

    Raises:
        LockstepError: all faults, except those hidden behind another fault.
    """
    faults: list[LockstepError] = []
    module = tree(path)
    hosts = _right_hosts(path, module, hosts, faults)
    host_names = [name for name, _ in hosts]
    with gather_faults(faults):
        _refuse_double_hosts(path, module, host_names)
    with gather_faults(faults):
        _refuse_double_keys(path, module)
    with gather_faults(faults):
        refuse_ignored(path, module, _keys())
    with gather_faults(faults):
        refuse_groups(path, names, host_names, folder_of(path) / "group_data")
    with gather_faults(faults):
        _refuse_unread_data(path, names)
    common = None
    with gather_faults(faults):
        common = _examine_shared_data(path)
    if common is None:
        raise joint_fault(faults)
    common_data, origin, wrong = common
    faults += wrong
    folder = folder_of(path)
    data_by_host = {name: {**common_data, **data} for name, data in hosts}

    def examine_hosts(where: _Where) -> tuple[list[HostPlan], list[LockstepError]]:
        results = [
            _examine_host(name, data_by_host[name], where[name], folder, checks)
            for name in data_by_host
        ]
        plans = [plan for plan, _ in results]
        faults = [fault for _, of_host in results for fault in of_host]
        with gather_faults(faults):
            check_agreement(plans, path.name, where)
        with gather_faults(faults):
            lock_path(path, plans)
        return plans, faults

    files = {name: {**origin, **dict.fromkeys(data, path.name)} for name, data in hosts}
    plans, all_faults = examine_hosts(files)
    if all_faults:
        # The place of each key is looked up only now, for the message.
        _, all_faults = examine_hosts(
            {
                name: {key: _place(path, name, key, file) for key, file in keys.items()}
                for name, keys in files.items()
            }
        )
        for fault in all_faults:
            file, _, line = fault.where.rpartition(":")
            if line.isdecimal() and file in {path.name, *origin.values()}:
                part = lines.line_of_part(_source(path, file), int(line), fault.summary)
                fault.where = f"{file}:{part}"
    raise_all(sorted(faults + all_faults, key=_by_line))
    return join_clusters(plans, path.name)


def _by_line(fault: LockstepError) -> tuple[str, int]:
    file, _, line = fault.where.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (fault.where, 0)


def _right_hosts(
    path: Path, module: ast.Module, hosts: Sequence[Any], faults: list[LockstepError]
) -> list[Host]:
    """Return the entries that are a name and data; add a fault for each other entry."""
    host_lines = lines.lines_of_hosts(module, path.stem)
    right = []
    for place, host in enumerate(hosts):
        match host:
            case (str(), Mapping()):
                right.append(host)
                continue
            case (_, _):
                # A password may stand where data belongs.
                data = "text" if isinstance(host[1], str) else _literal(host[1])
                found_text = f"({_literal(host[0])}, {data})"
            case _:
                found_text = _literal(host)
        line = f":{host_lines[place]}" if len(host_lines) == len(hosts) else ""
        fault = InventoryError(
            f"host {place + 1} of the list is no host",
            where=f"{path.name}{line}",
            found=found_text,
            remedy="Write (ADDRESS, {KEY: VALUE, …}).",
        )
        faults.append(fault)
    return right


def _literal(value: object) -> str:
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    # The content may be a password.
    size = f" of {len(value)}" if isinstance(value, tuple) else ""
    return f"{type(value).__name__}{size}"


def _refuse_double_hosts(path: Path, module: ast.Module, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        lines = [
            node.lineno
            for node in ast.walk(module)
            if isinstance(node, ast.Constant) and node.value == twice[0]
        ]
        where = f"{path.name}:{lines[-1]}" if len(lines) > 1 else path.name
        raise InventoryError("a host is listed twice", where=where, found=", ".join(twice))


def _place(path: Path, host: str, key: str, file: str) -> str:
    """Return a file, and the line at which it sets a host's key where that line is clear."""
    source = _source(path, file)
    line = (
        lines.line_of_key(source, host, key) if source == path else lines.line_of_name(source, key)
    )
    return f"{file}:{line}" if line else file


def _source(path: Path, file: str) -> Path:
    """Return the file whose lines messages about an inventory name."""
    if file == path.name:
        return path
    own = folder_of(path) / file
    return own if own.exists() else product.DEFAULTS


def origins(path: Path) -> dict[str, dict[str, str]]:
    """Return host → key of its data → the file that gives it."""
    hosts, _ = _hosts_of_file(path)
    _, origin = _common_data(path)
    return {name: {**origin, **dict.fromkeys(data, path.name)} for name, data in hosts}


def _common_data(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the data that all hosts of an inventory share, and the file that gave each key."""
    data, origin, faults = _examine_shared_data(path)
    raise_all(faults)
    return data, origin


def _examine_shared_data(path: Path) -> tuple[dict[str, Any], dict[str, str], list[LockstepError]]:
    """Return the result of `_common_data` with the faults of the files.

    LockstepError where a file cannot be read.
    """
    data: dict[str, Any] = {}
    origin: dict[str, str] = {}
    faults: list[LockstepError] = []
    unreadable: list[LockstepError] = []
    for file in _shared_files(path):
        with gather_faults(unreadable):
            values, wrong = _group_data(file)
            faults += wrong
            data |= values
            origin |= dict.fromkeys(values, _file_name(file))
    raise_all(unreadable)
    return data, origin, faults


def _refuse_unread_data(path: Path, names: Mapping[str, Any]) -> None:
    """Refuse group data of a name that no inventory of the owner's folder has."""
    folder = folder_of(path)
    inventories = {file.stem for at in (folder, path.parent) for file in at.glob("*.py")}
    faults = [
        InventoryError(
            "no inventory reads this file",
            where=_file_name(file),
            remedy=f"Call it all.py, or {path.name} for the hosts of {path.name}; "
            f"_{file.name} is passed over.",
        )
        for file in sorted((folder / "group_data").glob("*.py"))
        if not file.name.startswith("_") and file.stem not in {"all", *inventories, *names}
    ]
    raise_all(faults)


def _shared_files(path: Path) -> list[Path]:
    """Return the existing files of group data: Lockstep's defaults, then the owner's."""
    folder = folder_of(path) / "group_data"
    every = (product.DEFAULTS, folder / "all.py", folder / f"{path.stem}.py")
    # In a checkout both are the same file.
    return [file for file in dict.fromkeys(every) if file.exists()]


def _file_name(file: Path) -> str:
    """Return the name of a file of group data in messages."""
    return f"{file.parent.name}/{file.name}"


def lock_path(path: Path, plans: Sequence[HostPlan]) -> Path:
    """Return the lock file beside an inventory file, or the one that all its hosts name."""
    names_by_lock = {plan.settings.lock: plan.name for plan in plans}
    if len(names_by_lock) > 1:
        (first_lock, first), (second_lock, second) = list(names_by_lock.items())[:2]
        raise InventoryError(
            "the hosts of one inventory have one lock",
            where=path.name,
            found=f"lock {first_lock!r} of {first} and {second_lock!r} of {second}",
            remedy="Give all of them the same `lock`, or put them into two inventories.",
        )
    file = next(iter(names_by_lock), None)
    return folder_of(path) / (file or f"{path.stem}{LOCK_SUFFIX}")


def plan(
    name: str,
    data: Mapping[str, Any],
    origin: Mapping[str, str] | None = None,
    *,
    folder: Path,
) -> HostPlan:
    """Check one host's merged data; its clusters are not joined yet (`cluster_join`).

    Args:
        name: The host.
        data: Merged data; pyinfra's own keys are skipped.
        origin: Key → file that gave it, for errors.
        folder: The owner's folder.

    Raises:
        LockstepError: all faults of the data.
    """
    host_plan, faults = _examine_host(name, data, origin or {}, folder)
    raise_all(faults)
    return host_plan


def _examine_host(
    name: str,
    data: Mapping[str, Any],
    where: Mapping[str, str],
    folder: Path,
    checks: Sequence[Check] = (),
) -> tuple[HostPlan, list[LockstepError]]:
    """Return one host as far as its data can be read, and all faults of that data."""
    faults: list[LockstepError] = []
    values, gaps = _right_values(name, data, where, faults)
    settings = _settings_to_check(name, data, values, gaps)
    with gather_faults(faults):
        hint = schema.hints(Settings)["name"]
        schema.convert(hint, name, where=name, key="a host's name", error=InventoryError)
    with gather_faults(faults):
        check_values(settings, where, data.get("ssh_user"))
    for key, check in checks:
        with gather_faults(faults):
            refuse(check(settings), where.get(key, name))
    with gather_faults(faults):
        check_tools(settings, where)
    catalogue = None
    models: tuple[BoundModel, ...] = ()
    with gather_faults(faults):
        catalogue = load_catalogue(*recipe_folders(settings, folder))
    if catalogue is not None:
        with gather_faults(faults):
            models = bind(settings, catalogue, where)
        with gather_faults(faults):
            check_licences(settings, catalogue, where)
    own_files: tuple[ManagedFile, ...] = ()
    with gather_faults(faults):
        own_files = extra_files(settings, folder, where.get("extra_files", name))
    if faults:
        return HostPlan(name, settings_with_gaps(name, values, gaps), models), faults
    names = _names(settings, data.get("ssh_hostname"))
    return HostPlan(name, settings, models, names=names, extra_files=own_files), []


def _right_values(
    name: str, data: Mapping[str, Any], where: Mapping[str, str], faults: list[LockstepError]
) -> tuple[dict[str, Any], set[str]]:
    """Return key → value for the right keys, and the keys that are wrong."""
    keys = _keys()
    values: dict[str, Any] = {}
    gaps: set[str] = set()
    for key, value in data.items():
        at = where.get(key, name)
        if key in pyinfra_keys.KEYS:
            with gather_faults(faults):
                _check_login(key, value, at)
            continue
        if key not in keys:
            alike = pyinfra_keys.alike(key, keys)
            with gather_faults(faults):
                raise schema.unknown_key(key, alike, where=at, error=InventoryError)
            gaps.add(schema.name_after_renaming(key, alike) or schema.nearest_name(key, alike))
            continue
        with gather_faults(faults):
            values[key] = _value(key, value, at)
        if key not in values:
            gaps.add(key)
    if "models" not in {*values, *gaps}:
        missing = InventoryError("models is missing", where=name, remedy="Bind a recipe to a name.")
        faults.append(missing)
        gaps.add("models")
    return values, gaps


def _check_login(key: str, value: Any, where: str) -> None:
    """Refuse a value of pyinfra's own keys that would break its login."""
    try:
        if key in pyinfra_keys.LOGIN:
            _convert(pyinfra_keys.LOGIN[key], key, value, where)
    except InventoryError as fault:
        # These values may hold a password.
        if "password" in key or "kwargs" in key:
            fault.found = ""
        raise


def _value(key: str, value: Any, where: str) -> Any:
    return _convert(schema.hints(Settings)[key], key, value, where)


def _convert(hint: Any, key: str, value: Any, where: str) -> Any:
    return schema.convert(
        hint, value, where=where, key=key, error=InventoryError, of_all=joint_fault
    )


def _settings_to_check(
    name: str, data: Mapping[str, Any], values: Mapping[str, Any], gaps: Collection[str]
) -> Settings:
    """Return the settings for the checks of one host, with its right models only."""
    if not gaps:
        return Settings(name=name, **values)
    models: dict[str, Any] = {}
    if "models" in gaps and isinstance(data.get("models"), Mapping):
        for model, value in data["models"].items():
            with suppress(LockstepError):
                models |= _value("models", {model: value}, name)
    if not models:
        return settings_with_gaps(name, values, gaps)
    right = {**values, "models": models}
    missing = {*data["models"]} - {*models}
    # The model's own fault says more than "boot names no model" would.
    missing_keys = (
        {"boot"} if str(values.get("boot")).removesuffix(FALLBACK) in missing else set[str]()
    )
    return settings_with_gaps(name, right, {*gaps, *missing_keys} - {"models"})


def recipe_folders(settings: Settings, folder: Path) -> Collection[Path]:
    """Return the folders whose recipes a host knows: Lockstep's, the owner's, and named ones.

    `folder` is the owner's.
    """
    own = folder / _RECIPES
    folders = (folder / name for name in settings.recipe_folders)
    every = (product.CATALOGUE / "recipes", *((own,) if own.is_dir() else ()), *folders)
    # A named folder may be one that is always read.
    return tuple(dict.fromkeys(path.resolve() for path in every))


def _names(settings: Settings, login: str | None) -> tuple[str, ...]:
    """Return the names that other machines may call the host by: see `HostPlan.names`."""
    gateway = settings.gateway
    bind = () if gateway.bind in ("0.0.0.0", "::") else (gateway.bind,)
    # "@local" is no name for others.
    host_names = (name.lower() for name in (settings.name, login, *bind, *gateway.names) if name)
    return tuple(dict.fromkeys(name for name in host_names if not name.startswith("@")))


def _keys() -> set[str]:
    """Return every key that host data may have, without pyinfra's own."""
    return {item.name for item in fields(Settings)} - {"name"}


def _group_data(path: Path) -> tuple[dict[str, Any], list[LockstepError]]:
    """Return the values of a file of group data, and the faults of its form."""
    module = tree(path)
    faults: list[LockstepError] = []
    with gather_faults(faults):
        _refuse_double_keys(path, module)
    imported_keys = {
        (alias.asname or alias.name).split(".")[0]: node.lineno
        for node in module.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    dropped_keys = _keys().intersection(imported_keys)
    for name in sorted(dropped_keys):
        fault = InventoryError(
            f"{name!r} is imported, and pyinfra drops names that are",
            where=f"{_file_name(path)}:{imported_keys[name]}",
            remedy=f"Import it under another name: `import {name} as _{name}`.",
        )
        faults.append(fault)
    values = {
        key: value
        for key, value in _execute(path).items()
        if (key not in imported_keys or key in dropped_keys) and not pyinfra_keys.is_private(key)
    }
    return values, faults


def _execute(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InventoryError("the file does not exist", where=str(path))
    tree(path)
    try:
        # A program may read what a command prints.
        with redirect_stdout(sys.stderr):
            return runpy.run_path(str(path))
    except LockstepError:
        raise
    except (Exception, SystemExit) as fault:
        # `checked` ends the process with what is wrong. An end with 0 would end a command as if all
        # was well.
        if isinstance(fault, SystemExit) and fault.code:
            raise
        at = [
            frame.lineno
            for frame in traceback.extract_tb(fault.__traceback__)
            if frame.filename == str(path)
        ]
        raise InventoryError(
            "the file fails when it is read",
            where=f"{path}:{at[-1]}" if at else str(path),
            found=f"{type(fault).__name__}: {fault}",
            remedy=_remedy_of_import(fault),
        ) from fault


def _remedy_of_import(fault: BaseException) -> str:
    """Return the present name of a default that a file imports by a former name, or ""."""
    match = _NO_DEFAULT.match(str(fault))
    new_name = schema.name_after_renaming(match[1], _keys()) if match else ""
    return f"It is called {new_name!r} now. Import that, and rename the key." if new_name else ""


def tree(path: Path) -> ast.Module:
    """Parse a Python file. InventoryError where it is not Python, or not UTF-8."""
    try:
        return _parse(path.read_text(encoding="utf-8"), str(path))
    except SyntaxError as fault:
        raise InventoryError(
            f"not valid Python: {fault.msg}",
            where=f"{path.name}:{fault.lineno}" if fault.lineno else path.name,
        ) from fault
    except UnicodeDecodeError as fault:
        raise InventoryError("the file is not UTF-8 text", where=str(path)) from fault


@cache
def _parse(text: str, filename: str) -> ast.Module:
    """Parse a file's text, once: one command reads group data several times."""
    module = ast.parse(text, filename=filename)
    # Some faults are found only here: a `return` outside a function.
    compile(module, filename, "exec")
    return module


def _refuse_double_keys(path: Path, module: ast.Module) -> None:
    """Refuse a key that stands twice: Python silently keeps the last, so a model could vanish."""
    faults: list[LockstepError] = []
    for mapping in (node for node in ast.walk(module) if isinstance(node, ast.Dict)):
        seen_keys: set[object] = set()
        for key in (key for key in mapping.keys if isinstance(key, ast.Constant)):
            if key.value in seen_keys:
                fault = InventoryError(
                    f"key {key.value!r} stands twice in one mapping",
                    where=f"{path.name}:{key.lineno}",
                    remedy="Keep one of them: Python takes the last.",
                )
                faults.append(fault)
            seen_keys.add(key.value)
    raise_all(faults)
