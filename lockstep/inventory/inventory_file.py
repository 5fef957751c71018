"""Inventories read as pyinfra reads them, but without contacting a host, and checked whole."""

from __future__ import annotations

import ast
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
from lockstep.inventory import lines, pyinfra_keys
from lockstep.inventory.bound_targets import BoundTarget, bind, check_licences, check_tools
from lockstep.inventory.cluster_join import check_agreement, joined
from lockstep.inventory.gaps import settings_with_gaps
from lockstep.inventory.host import HostPlan
from lockstep.inventory.inventory_names import refuse_groups, refuse_ignored
from lockstep.inventory.refusals import Refusals, refuse
from lockstep.inventory.settings import FALLBACK, Settings
from lockstep.inventory.settings_check import check_values
from lockstep.onhost.core import schema
from lockstep.recipes.recipe_file import load_catalogue

LOCK_SUFFIX = ".lock.yaml"
_SHARED_FOLDER = "inventories"
_RECIPES = "recipes"
Host = tuple[str, Mapping[str, Any]]
#: A check of one host's data, by the key that it is about.
Check = tuple[str, Callable[[Settings], Refusals]]
# Host → key of its data → the file that gives it, and the line.
_Where = Mapping[str, Mapping[str, str]]


def folder_of(path: Path) -> Path:
    """The owner's folder: the one that an inventory file is in, or that its `inventories` is in.

    All that people write is there: the lock, group data, recipes, `deploy.py`.
    """
    folder = path.absolute().parent
    return folder.parent if folder.name == _SHARED_FOLDER else folder


def group_data(path: Path) -> dict[str, Any]:
    """What the hosts of an inventory file have in common; the defaults of Lockstep lowest."""
    return _shared(path)[0]


def load(path: Path) -> tuple[HostPlan, ...]:
    """Every host of an inventory file, without contacting one. InventoryError for wrong data."""
    return read(path, *_listed(path))


def load_merged(path: Path) -> tuple[tuple[HostPlan, ...], dict[str, dict[str, Any]]]:
    """As `load`, and each host's whole data by name: pyinfra's own keys included, not checked."""
    hosts, names = _listed(path)
    plans = read(path, hosts, names)
    shared, _ = _shared(path)
    return plans, {name: {**shared, **data} for name, data in hosts}


def _listed(path: Path) -> tuple[list[Host], Mapping[str, Any]]:
    """The hosts of an inventory file, and every name that it defines."""
    names = _execute(path)
    hosts = names.get(path.stem, names.get("all"))
    if isinstance(hosts, tuple) and hosts:
        hosts = hosts[0]
    if not isinstance(hosts, list) or not hosts:
        raise InventoryError(
            f"the inventory defines no list of hosts named {path.stem!r}",
            where=str(path),
            remedy=f"End it with `{path.stem} = checked(__file__, [(ADDRESS, {{…}}), …])`.",
        )
    return hosts_with_data(hosts), names


def hosts_with_data(hosts: Sequence[Any]) -> list[Host]:
    """Hosts with the data of each; what pyinfra takes for no host stays as it is."""
    return [(host, {}) if isinstance(host, str) else host for host in hosts]


def read(
    path: Path, hosts: Sequence[Host], names: Mapping[str, Any], checks: Sequence[Check] = ()
) -> tuple[HostPlan, ...]:
    """Merge group data into each host as pyinfra does, and check the result.

    Args:
        path: The inventory file.
        hosts: Its hosts.
        names: What it defines, as far as it is executed.
        checks: More checks of each host's data.

    Raises:
        LockstepError: everything that is wrong, but for what cannot be judged because of it.
    """
    faults: list[LockstepError] = []
    module = tree(path)
    hosts = _right_hosts(path, module, hosts, faults)
    listed = [name for name, _ in hosts]
    with gather_faults(faults):
        _refuse_double_hosts(path, module, listed)
    with gather_faults(faults):
        _refuse_double_keys(path, module)
    with gather_faults(faults):
        refuse_ignored(path, module, _keys())
    with gather_faults(faults):
        refuse_groups(path, names, listed, folder_of(path) / "group_data")
    with gather_faults(faults):
        _refuse_unread_data(path, names)
    common = None
    with gather_faults(faults):
        common = _examine_shared_data(path)
    if common is None:
        raise joint_fault(faults)
    shared, origin, wrong = common
    faults += wrong
    folder = folder_of(path)
    merged = {name: {**shared, **data} for name, data in hosts}

    def examine_hosts(where: _Where) -> tuple[list[HostPlan], list[LockstepError]]:
        each = [_examine_host(name, merged[name], where[name], folder, checks) for name in merged]
        plans = [plan for plan, _ in each]
        found = [fault for _, of_host in each for fault in of_host]
        with gather_faults(found):
            check_agreement(plans, path.name, where)
        with gather_faults(found):
            lock_path(path, plans)
        return plans, found

    files = {name: {**origin, **dict.fromkeys(data, path.name)} for name, data in hosts}
    plans, found = examine_hosts(files)
    if found:
        # Where each key stands is looked for only now.
        _, found = examine_hosts(
            {
                name: {key: _place(path, name, key, file) for key, file in keys.items()}
                for name, keys in files.items()
            }
        )
        for fault in found:
            file, _, line = fault.where.rpartition(":")
            if line.isdecimal() and file in {path.name, *origin.values()}:
                part = lines.line_of_part(_source(path, file), int(line), fault.what)
                fault.where = f"{file}:{part}"
    raise_all(sorted(faults + found, key=_by_line))
    return joined(plans, path.name)


def _by_line(fault: LockstepError) -> tuple[str, int]:
    file, _, line = fault.where.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (fault.where, 0)


def _right_hosts(
    path: Path, module: ast.Module, hosts: Sequence[Any], faults: list[LockstepError]
) -> list[Host]:
    """Those of the listed hosts that are a name and data; a fault for each other one."""
    written = lines.lines_of_hosts(module, path.stem)
    right = []
    for place, host in enumerate(hosts):
        match host:
            case (str(), Mapping()):
                right.append(host)
                continue
            case (_, _):
                # Where data belong a password may stand.
                data = "text" if isinstance(host[1], str) else _shown(host[1])
                found = f"({_shown(host[0])}, {data})"
            case _:
                found = _shown(host)
        line = f":{written[place]}" if len(written) == len(hosts) else ""
        fault = InventoryError(
            f"host {place + 1} of the list is no host",
            where=f"{path.name}{line}",
            found=found,
            remedy="Write (ADDRESS, {KEY: VALUE, …}).",
        )
        faults.append(fault)
    return right


def _shown(value: object) -> str:
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    # What is inside may be a password.
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
    """A file, and the line at which it sets a key of a host where that is clear."""
    source = _source(path, file)
    line = (
        lines.line_of_key(source, host, key) if source == path else lines.line_of_name(source, key)
    )
    return f"{file}:{line}" if line else file


def _source(path: Path, file: str) -> Path:
    """A file of which messages about an inventory name a line."""
    if file == path.name:
        return path
    own = folder_of(path) / file
    return own if own.exists() else product.DEFAULTS


def origins(path: Path) -> dict[str, dict[str, str]]:
    """Host → key of its data → the file that gives it."""
    hosts, _ = _listed(path)
    _, shared = _shared(path)
    return {name: {**shared, **dict.fromkeys(data, path.name)} for name, data in hosts}


def _shared(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Data of all hosts of an inventory, and the file that gave each key."""
    shared, origin, faults = _examine_shared_data(path)
    raise_all(faults)
    return shared, origin


def _examine_shared_data(path: Path) -> tuple[dict[str, Any], dict[str, str], list[LockstepError]]:
    """As `_shared`, with what is wrong in the files. LockstepError where one cannot be read."""
    shared: dict[str, Any] = {}
    origin: dict[str, str] = {}
    faults: list[LockstepError] = []
    unreadable: list[LockstepError] = []
    for file in _shared_files(path):
        with gather_faults(unreadable):
            values, wrong = _group_data(file)
            faults += wrong
            shared |= values
            origin |= dict.fromkeys(values, _file_name(file))
    raise_all(unreadable)
    return shared, origin, faults


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
            where=path.name,
            found=f"lock {one!r} of {first} and {other!r} of {second}",
            remedy="Give all of them the same `lock`, or put them into two inventories.",
        )
    file = next(iter(named), None)
    return folder_of(path) / (file or f"{path.stem}{LOCK_SUFFIX}")


def plan(
    name: str,
    data: Mapping[str, Any],
    origin: Mapping[str, str] | None = None,
    *,
    folder: Path,
) -> HostPlan:
    """One host's merged data, checked; its clusters are not joined yet (`cluster_join`).

    Args:
        name: The host.
        data: Merged data; pyinfra's own keys are skipped.
        origin: Key → file that gave it, for errors.
        folder: The owner's folder.

    Raises:
        LockstepError: everything that is wrong with it.
    """
    made, faults = _examine_host(name, data, origin or {}, folder)
    raise_all(faults)
    return made


def _examine_host(
    name: str,
    data: Mapping[str, Any],
    where: Mapping[str, str],
    folder: Path,
    checks: Sequence[Check] = (),
) -> tuple[HostPlan, list[LockstepError]]:
    """One host as far as its data can be read, and everything that is wrong with it."""
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
    targets: tuple[BoundTarget, ...] = ()
    with gather_faults(faults):
        catalogue = load_catalogue(*recipe_folders(settings, folder))
    if catalogue is not None:
        with gather_faults(faults):
            targets = bind(settings, catalogue, where)
        with gather_faults(faults):
            check_licences(settings, catalogue, where)
    if faults:
        return HostPlan(name, settings_with_gaps(name, values, gaps), targets), faults
    return HostPlan(name, settings, targets, names=_names(settings, data.get("ssh_hostname"))), []


def _right_values(
    name: str, data: Mapping[str, Any], where: Mapping[str, str], faults: list[LockstepError]
) -> tuple[dict[str, Any], set[str]]:
    """Key → its value, of those that are right; and the keys that are wrong."""
    known = _keys()
    values: dict[str, Any] = {}
    gaps: set[str] = set()
    for key, value in data.items():
        at = where.get(key, name)
        if key in pyinfra_keys.KEYS:
            with gather_faults(faults):
                _check_login(key, value, at)
            continue
        if key not in known:
            alike = pyinfra_keys.alike(key, known)
            with gather_faults(faults):
                raise schema.unknown_key(key, alike, where=at, error=InventoryError)
            gaps.add(schema.nearest_name(key, alike))
            continue
        with gather_faults(faults):
            values[key] = _value(key, value, at)
        if key not in values:
            gaps.add(key)
    if "targets" not in {*values, *gaps}:
        missing = InventoryError(
            "targets is missing", where=name, remedy="Bind a recipe to a name."
        )
        faults.append(missing)
        gaps.add("targets")
    return values, gaps


def _check_login(key: str, value: Any, where: str) -> None:
    """Refuse a value of pyinfra's own that it would stumble over when it logs in."""
    try:
        if key in pyinfra_keys.LOGIN:
            _converted(pyinfra_keys.LOGIN[key], key, value, where)
    except InventoryError as fault:
        # These may hold a password.
        if "password" in key or "kwargs" in key:
            fault.found = ""
        raise


def _value(key: str, value: Any, where: str) -> Any:
    return _converted(schema.hints(Settings)[key], key, value, where)


def _converted(hint: Any, key: str, value: Any, where: str) -> Any:
    return schema.convert(
        hint, value, where=where, key=key, error=InventoryError, of_all=joint_fault
    )


def _settings_to_check(
    name: str, data: Mapping[str, Any], values: Mapping[str, Any], gaps: Collection[str]
) -> Settings:
    """Input of the checks of one host: with those of its targets that are right."""
    if not gaps:
        return Settings(name=name, **values)
    targets: dict[str, Any] = {}
    if "targets" in gaps and isinstance(data.get("targets"), Mapping):
        for target, value in data["targets"].items():
            with suppress(LockstepError):
                targets |= _value("targets", {target: value}, name)
    if not targets:
        return settings_with_gaps(name, values, gaps)
    right = {**values, "targets": targets}
    missing = {*data["targets"]} - {*targets}
    # Of the target that it names more is said than that there is none.
    named = {"boot"} if str(values.get("boot")).removesuffix(FALLBACK) in missing else set[str]()
    return settings_with_gaps(name, right, {*gaps, *named} - {"targets"})


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


def _group_data(path: Path) -> tuple[dict[str, Any], list[LockstepError]]:
    """Values of a file of group data, and what is wrong with how it says them."""
    module = tree(path)
    faults: list[LockstepError] = []
    with gather_faults(faults):
        _refuse_double_keys(path, module)
    imported = {
        (alias.asname or alias.name).split(".")[0]: node.lineno
        for node in module.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    dropped = _keys().intersection(imported)
    for name in sorted(dropped):
        fault = InventoryError(
            f"{name!r} is imported, and pyinfra drops names that are",
            where=f"{_file_name(path)}:{imported[name]}",
            remedy=f"Import it under another name: `import {name} as _{name}`.",
        )
        faults.append(fault)
    values = {
        key: value
        for key, value in _execute(path).items()
        if (key not in imported or key in dropped) and not pyinfra_keys.is_private(key)
    }
    return values, faults


def _execute(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InventoryError("the file does not exist", where=str(path))
    tree(path)
    try:
        # What a command prints may be read by a program.
        with redirect_stdout(sys.stderr):
            return runpy.run_path(str(path))
    except LockstepError:
        raise
    except (Exception, SystemExit) as fault:
        # `checked` ends with what is wrong; one that ends with 0 would end a command as if all was
        # well.
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
    faults: list[LockstepError] = []
    for mapping in (node for node in ast.walk(module) if isinstance(node, ast.Dict)):
        seen: set[object] = set()
        for key in (key for key in mapping.keys if isinstance(key, ast.Constant)):
            if key.value in seen:
                fault = InventoryError(
                    f"key {key.value!r} stands twice in one mapping",
                    where=f"{path.name}:{key.lineno}",
                    remedy="Keep one of them; a target can be bound only once.",
                )
                faults.append(fault)
            seen.add(key.value)
    raise_all(faults)
