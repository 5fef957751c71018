"""systemd: units and their programs, boot links, drop-ins, failures.

`restart_key` is the restart key with which the running process was started (LOCKSTEP_RESTART_KEY in
its environment). So the unit itself shows that a restart is due, however its files were changed.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.onhost.core import clock, layout
from lockstep.onhost.facts.reader_helpers import Facts, paths_below, text
from lockstep.onhost.records import models_by_boot, watch_findings
from lockstep.onhost.records.ownership import is_marked
from lockstep.onhost.system import gpu_sensors
from lockstep.onhost.systemd import outdated_units, units

_PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "Result", "UnitFileState", "NeedDaemonReload"),
    *("MainPID", "ControlPID", "ActiveEnterTimestamp", "FragmentPath", "DropInPaths"),
    *("EnvironmentFiles", "Job", "StateChangeTimestampMonotonic"),
)
_FOLDER = "/etc/systemd/system"
_WANTS = (".wants", ".requires", ".upholds")  # Folders whose links name the units to start.
# A secret of ours that systemd reads for a service at its start.
_CREDENTIAL = re.compile(r"^LoadCredential=[^:\n]+:(/etc/lockstep/secrets/\S+)$", re.MULTILINE)
_OURS = "/etc/lockstep/"
_RUNNING = ("active", "activating", "reloading")
#: States of a system service: it runs and starts at boot, or it only runs.
ON, OFF_AT_BOOT = "on", "off at boot"
# The unit that starts a service on demand: Ubuntu's sshd waits for its socket, not a boot.
_SOCKETS = {"ssh.service": "ssh.socket"}
# Seconds for which a process runs before its unit counts as up: a fault at its start shows earlier.
_SETTLED_S = 5.0
# Longest wait for that, seconds.
_SETTLING_S = 30.0
# "enabled-runtime" lasts only until the next boot.
_NOT_ENABLED = ("disabled", "enabled-runtime")


def read(question: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the state of units.

    Args:
        question: The "programs" of each unit by its name, which may be a pattern. For diff also
            the paths that a unit "reads" once, at its start, and the units of the "system", whose
            own file counts.

    Returns:
        Unit → systemd's properties, its restart key ("restart_key"), its boot "links", the "newer"
        files of `_newer_files`, and "settled": whether it has run so long that its start is over.
    """
    boot = _links()
    return {
        name: {
            **state,
            "restart_key": outdated_units.running_restart_key(unit),
            "newer": _newer_files(unit, state, question),
            "links": sorted(boot.get(name, [])),
            "settled": _is_settled(unit),
        }
        for name, state in units.properties(question["programs"], *_PROPERTIES).items()
        for unit in [units.unit_from_properties(state)]
    }


def _is_settled(unit: units.Unit) -> bool:
    """Tell whether a unit is up for good, or has done its work; one that never ran has done so."""
    if unit.active == "inactive":
        return unit.result == "success"
    is_old = unit.sub != "running" or clock.now() - unit.change_time >= _SETTLED_S
    return unit.active == "active" and is_old


def await_settled_units(names: list[str]) -> dict[str, str]:
    """Return those of the units that do not come up → why, with the last line of each.

    Each has 30 s, unless it has failed meanwhile, or has twice been started again.
    """
    first_states = units.units_by_name(names)
    deadline = clock.now() + _SETTLING_S
    while True:
        faulty_units = [
            unit for unit in units.units_by_name(names).values() if not _is_settled(unit)
        ]
        if clock.now() >= deadline or all(
            unit.active in ("failed", "inactive")
            or unit.restarts >= first_states[unit.name].restarts + 2
            for unit in faulty_units
        ):
            return {
                unit.name: f"{unit.active} ({unit.sub}), restarted {unit.restarts} times: "
                f"{_last_line(unit.name)}"
                for unit in faulty_units
            }
        clock.sleep(0.5)


def _last_line(name: str) -> str:
    """Return the last line of a unit's processes in its journal, or else systemd's."""
    lines = units.last_lines(name, 20)
    by_systemd = (f"{name}: ", f"Starting {name}", f"Started {name}", f"Stopped {name}")
    own_lines = [line for line in lines if not line.startswith(by_systemd)]
    return (own_lines or lines or ["its journal is empty"])[-1].strip()


def _links() -> dict[str, list[str]]:
    """Return the boot links of each unit, wherever they were made."""
    links: dict[str, list[str]] = {}
    for root, folders, files in os.walk(_FOLDER):
        for name in (*files, *folders) if root.endswith(_WANTS) else ():
            links.setdefault(name, []).append(os.path.join(root, name))
    return links


def _newer_files(
    unit: units.Unit, state: Mapping[str, str], question: Mapping[str, Any]
) -> dict[str, bool]:
    """Return the files newer than the unit that read them → whether a deploy restarts it for them.

    It does so for our drop-ins, for secrets, variables and programs of ours: a file that was
    changed by hand and put back leaves the restart key unchanged. A socket, and the GPU's cap, has
    no process with a key, so its own file counts. Other units that have done their work, and
    timers, which systemd reads again whenever it reads its units, are not started for theirs.
    """
    name, drop_ins = unit.name, state.get("DropInPaths", "").split()
    if unit.active != "active" or unit.enter_time is None or name.endswith(".timer"):
        return {}
    fragment, variables = state.get("FragmentPath", ""), units.environment_files(state)
    is_done, is_socket = unit.sub == "exited", name.endswith(".socket")
    has_no_key = name == gpu_sensors.CAP_UNIT or (is_socket and is_marked(Path(fragment)))
    own_drop_ins = glob.glob(f"{_FOLDER}/{name}.d/*.conf")
    own_drop_ins = [path for path in own_drop_ins if is_marked(Path(path))]
    own_files = [
        *own_drop_ins,
        *_CREDENTIAL.findall(text(fragment) or ""),
        *(path for path in variables if path.startswith(_OURS)),
        *([fragment] if has_no_key else ()),
        # A unit that has done its work holds no program.
        *(question["programs"].get(name, ()) if unit.sub == "running" else ()),
    ]
    other_files = [
        *(*drop_ins, *variables),
        *(question.get("reads", {}).get(name, ()) if not is_done else ()),
        *([fragment] if is_socket or name in question.get("system", ()) else ()),
    ]
    newer_paths = {
        path: path in own_files
        for place in (*own_files, *other_files)
        for path in paths_below(place)
        if outdated_units.is_written_after(path, unit.enter_time)
    }
    # A drop-in that systemd does not name was never read.
    return newer_paths | {path: True for path in own_drop_ins if path not in drop_ins}


def system_services(question: Mapping[str, Any]) -> Facts:
    """Yield `ON` or the lack of each of the "services"; nothing of one that is not there."""
    names, links = question["services"], _links()
    sockets = [socket for name, socket in _SOCKETS.items() if name in names]
    unit_states = units.properties([*names, *sockets], *_PROPERTIES)
    for name in names:
        states = [unit_states[unit] for unit in (name, _SOCKETS.get(name)) if unit in unit_states]
        if not states or states[0]["LoadState"] == "not-found":
            continue
        lacks = [] if any(map(_is_up, states)) else [states[0]["ActiveState"]]
        if states[0]["LoadState"] == "masked":
            lacks.append("masked")
        elif all(_is_off_at_boot(state, links) for state in states):
            lacks.append(OFF_AT_BOOT)
        yield "system service", name, ", ".join(lacks) or ON


def _is_up(state: Mapping[str, str]) -> bool:
    return state["ActiveState"] in _RUNNING


def _is_off_at_boot(state: Mapping[str, str], links: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether a boot does not start a unit that could be enabled; a static one cannot."""
    if state["LoadState"] != "loaded":
        return True
    return state["UnitFileState"] in _NOT_ENABLED and state["Id"] not in links


def at_boot(question: dict[str, Any]) -> Facts:
    """Yield units that start at boot, or may not start at all, from the links that systemd reads.

    Units that are "known" are left out, because another kind reports them.
    """
    for folder in (_FOLDER, "/run/systemd/system"):
        for path in paths_below(folder):
            name, place = os.path.basename(path), os.path.dirname(path)
            if not os.path.islink(path) or name in question["known"]:
                continue
            if os.readlink(path) == "/dev/null":
                yield "service", name, "masked"
            elif place.endswith(_WANTS):
                yield "service", f"{name} for {os.path.basename(place)}", "on"
            else:
                yield "service", name, f"is {os.path.basename(os.readlink(path))}"


def failed_units(_: object) -> Facts:
    """Yield units that systemd counts as failed."""
    for name, unit in units.loaded_units().items():
        if unit.active == "failed":
            is_boot = name == models_by_boot.UNIT
            why = models_by_boot.no_model_reason_of_boot(layout.Paths()) if is_boot else None
            yield "failed unit", name, why or "failed"


def engines_ended_by_watch(_: object) -> Facts:
    """Yield engines that the memory watch has ended, and that nobody has made hot again."""
    for kill in watch_findings.load(layout.Paths()).kills.values():
        yield "ended engine", kill.unit, kill.reason
