"""An inventory checked whole before any connection, every file of its deploy rendered once.

An inventory file ends with ``GROUP = checked(__file__, hosts)``: pyinfra executes that file before
it connects anywhere, so wrong input never reaches a Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from lockstep.core.errors import LockstepError, gather_faults, paragraph, raise_all
from lockstep.drift.subjects import unknown_kinds
from lockstep.inventory import inventory_file as inventory
from lockstep.inventory.host import HostPlan
from lockstep.lock import moving, pins
from lockstep.lock.packages import name_of
from lockstep.lock.wanted import wanted
from lockstep.models import gguf
from lockstep.units.all_files import artefacts

_DIGEST = "sha256:" + 64 * "0"
_COMMIT = 40 * "0"


#: Key of a group's data: the inventory file, absolute. pyinfra does not say it, and no host has it.
INVENTORY_FILE = "_inventory_file"
#: Hosts and what they have in common, as pyinfra takes a group.
Group = tuple[list[inventory.Host], dict[str, Any]]


def checked(inventory_file: str, hosts: Sequence[inventory.Host | str]) -> Group:
    """``hosts`` unchanged with their group data, after every fault in them was looked for.

    Ends the process with exit code 2 and one message per fault, before any connection.
    """
    path = Path(inventory_file).absolute()
    named = inventory.hosts_with_data(hosts)
    try:
        plans = inventory.read(path, named, _names_of(inventory_file), [("differs", unknown_kinds)])
        rehearse(plans)
    except LockstepError as fault:
        _end(fault)
    return named, {**inventory.group_data(path), INVENTORY_FILE: str(path)}


def must_be_python(arguments: Sequence[str]) -> None:
    """End the process where a file that is about to be executed is not Python.

    Of a command line the files whose names end with .py are looked at, and the group data here.
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


def rehearse(plans: Sequence[HostPlan]) -> None:
    """Render all files of all hosts and keep none.

    What branches, tags and revisions stand for is not known yet; zeros stand in for it.

    Raises:
        LockstepError: a missing template value, two things that would write one file, a value
            that no unit can hold, hosts that want one thing in two ways.
    """
    known = stand_ins(plans)
    faults: list[LockstepError] = []
    for plan in plans:
        with gather_faults(faults):
            artefacts(plan, known, engine_id=12 * "0")
    raise_all(faults)


def stand_ins(plans: Sequence[HostPlan]) -> pins.Pins:
    """Pins of zeros for everything that hosts want, where nothing is resolved yet."""
    hosts = [(plan.settings, plan.targets) for plan in plans]
    return pins.pinned({item: _stand_in(item) for item in wanted(hosts)})


def _stand_in(item: moving.Item) -> pins.Pin:
    match item:
        case moving.PythonWanted(asked=asked):
            wheels = tuple(pins.WheelPin(name_of(text), "0", "", "") for text in asked)
            trees = {tree.url: tree.commit or _COMMIT for tree in item.trees}
            versions = (asked, item.architecture, item.python)
            return pins.PythonPin(*versions, wheels, trees, exclude_newer=item.exclude_newer)
        case moving.GitWanted():
            return pins.GitPin(item.branch, item.commit or _COMMIT)
        case moving.PrecompiledWanted(tree=tree, commit=commit):
            of = (tree.commit or _COMMIT, item.upstream, commit or _COMMIT)
            return pins.PrecompiledPin(*of, item.architecture, item.variant, "0.whl", 64 * "0", 0)
        case moving.ImageWanted():
            return pins.ImagePin(_DIGEST, item.architecture, 0)
        case moving.ModelWanted(files=files):
            # Of GGUF models an engine is given files by name; else none is looked for.
            quants = [name for name in files if gguf.is_quantisation(name)]
            named = tuple(
                pins.FilePin(f"{name.removeprefix(gguf.MARK)}.gguf", 0) for name in quants
            )
            return pins.ModelPin(item.revision, _COMMIT, named)
    raise AssertionError(f"nothing stands in for {item}")


def _names_of(inventory_file: str) -> Mapping[str, Any]:
    """What an inventory that is being executed has defined so far, {} where none is."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__file__") != inventory_file:
        frame = frame.f_back
    return {} if frame is None else frame.f_globals


def _end(fault: LockstepError) -> NoReturn:
    text = paragraph(f"{fault}\nNothing was contacted and nothing was changed.")
    print(text, file=sys.stderr)
    raise SystemExit(2) from None
