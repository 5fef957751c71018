"""The check of a whole inventory before any connection; every file of its deploy is rendered once.

An inventory file ends with ``GROUP = checked(__file__, hosts)``. pyinfra executes that file before
it connects anywhere, so wrong input never reaches a Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from lockstep.checkpoints import gguf
from lockstep.core.errors import LockstepError, gather_faults, paragraph, raise_all
from lockstep.inventory import inventory_file as inventory
from lockstep.inventory.host import HostPlan
from lockstep.inventory.refusals import Refusals
from lockstep.inventory.settings import Settings
from lockstep.lock import moving, pins
from lockstep.lock.lock_items import wanted_items
from lockstep.lock.packages import name_of
from lockstep.units.all_files import deployed_files

_DIGEST = "sha256:" + 64 * "0"
_COMMIT = 40 * "0"


#: Key of a group's data for the inventory file, absolute. pyinfra does not pass the file, and no
#: host receives it.
INVENTORY_FILE = "_inventory_file"
#: Hosts and their common data, in pyinfra's form of a group.
Group = tuple[list[inventory.Host], dict[str, Any]]


def checked(inventory_file: str, hosts: Sequence[inventory.Host | str]) -> Group:
    """Return ``hosts`` unchanged with their group data, after a check for every fault in them.

    With a fault it ends the process with exit code 2 and one message per fault, before any
    connection.
    """
    path = Path(inventory_file).absolute()
    try:
        _refuse_other_than_list(path, hosts)
        named_hosts = inventory.hosts_with_data(hosts)
        plans = inventory.read(
            path, named_hosts, _names_of(inventory_file), [("differs", _unknown_kinds)]
        )
        rehearse(plans)
    except LockstepError as fault:
        _end(fault)
    return named_hosts, {**inventory.group_data(path), INVENTORY_FILE: str(path)}


def _unknown_kinds(settings: Settings) -> Refusals:
    if settings.differs:
        # Most inventories have none, and the import takes 0.07 s of a no-op (lab, 2026-11-30).
        from lockstep.drift.subjects import unknown_kinds

        yield from unknown_kinds(settings)


def _refuse_other_than_list(path: Path, hosts: object) -> None:
    """Refuse hosts in a mapping, whose data nothing would read, or in one text."""
    if not isinstance(hosts, list | tuple):
        raise LockstepError(
            "the hosts must be a list",
            where=path.name,
            found=type(hosts).__name__,
            remedy="Write [(ADDRESS, {KEY: VALUE, …}), …].",
        )


def must_be_python(arguments: Sequence[str]) -> None:
    """End the process if a file that is about to be executed is not Python.

    Checks the files of a command line whose names end with .py, and the group data here.
    """
    files = [Path(word) for word in arguments if word.endswith(".py") and Path(word).is_file()]
    faults: list[LockstepError] = []
    for file in (*files, *sorted(Path("group_data").glob("*.py"))):
        with gather_faults(faults):
            inventory.tree(file)
    try:
        raise_all(faults)
    except LockstepError as fault:
        _end(fault)


def name_modules_of_files(arguments: Sequence[str]) -> None:
    """Give each Python file of a command line an empty module.

    pyinfra executes these files without a module, and looks for the module of each frame of an
    operation's stack. For a file without one, Python looks through all modules: a twentieth of a
    no-op's time (lab, 2026-11-30).
    """
    for word in arguments:
        if word.endswith(".py"):
            path = str(Path(word).absolute())
            sys.modules[path] = ModuleType(path)
            sys.modules[path].__file__ = path


def rehearse(plans: Sequence[HostPlan]) -> None:
    """Render all files of all hosts and keep none.

    Zeros stand in for the unresolved meaning of branches, tags and revisions.

    Raises:
        LockstepError: a missing template value, two things that would write one file, a value
            that no unit can hold, hosts that want one thing in two ways.
    """
    pins = stand_ins(plans)
    faults: list[LockstepError] = []
    for plan in plans:
        with gather_faults(faults):
            deployed_files(plan, pins, engine_id=12 * "0")
    raise_all(faults)


def stand_ins(plans: Sequence[HostPlan]) -> pins.Pins:
    """Return pins of zeros for everything that hosts want, for use before anything is resolved."""
    hosts = [(plan.settings, plan.models) for plan in plans]
    return pins.pins_of({item: _stand_in(item) for item in wanted_items(hosts)})


def _stand_in(item: moving.Item) -> pins.Pin:
    match item:
        case moving.PythonItem(requirements=packages):
            wheels = tuple(pins.WheelPin(name_of(text), "0", "", "") for text in packages)
            trees = {tree.url: tree.commit or _COMMIT for tree in item.trees}
            versions = (packages, item.architecture, item.python)
            return pins.PythonPin(*versions, wheels, trees, exclude_newer=item.exclude_newer)
        case moving.GitItem():
            return pins.GitPin(item.branch, item.commit or _COMMIT)
        case moving.PrecompiledItem(tree=tree, commit=commit):
            of = (tree.commit or _COMMIT, item.upstream, commit or _COMMIT)
            return pins.PrecompiledPin(*of, item.architecture, item.variant, "0.whl", 64 * "0", 0)
        case moving.ImageItem():
            return pins.ImagePin(_DIGEST, item.architecture, 0)
        case moving.CheckpointItem(files=files):
            # An engine gets the files of GGUF models by name. Other models' files are not looked
            # up.
            quants = [name for name in files if gguf.is_quantisation(name)]
            stand_in_files = tuple(
                pins.FilePin(f"{name.removeprefix(gguf.MARK)}.gguf", 0) for name in quants
            )
            return pins.CheckpointPin(item.revision, _COMMIT, stand_in_files)
    raise AssertionError(f"nothing stands in for {item}")


def _names_of(inventory_file: str) -> Mapping[str, Any]:
    """Return the names that an inventory under execution has defined so far; {} if none is."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__file__") != inventory_file:
        frame = frame.f_back
    return {} if frame is None else frame.f_globals


def _end(fault: LockstepError) -> NoReturn:
    text = paragraph(f"{fault}\nNothing was contacted and nothing was changed.")
    print(text, file=sys.stderr)
    raise SystemExit(2) from None
