"""systemd: units and their programs, boot links, drop-ins, failures.

`restart_key` is the restart key with which the running process was started (LOCKSTEP_RESTART_KEY in
its environment). So the unit itself shows that a restart is due, however its files were changed.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lockstep.onhost.core import clock, layout, process_liveness
from lockstep.onhost.facts.reader_helpers import Fact, Facts, paths_below, text
from lockstep.onhost.records import models_by_boot, watch_findings
from lockstep.onhost.records.ownership import is_marked
from lockstep.onhost.systemd import units

_PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "Result", "UnitFileState", "NeedDaemonReload"),
    *("MainPID", "ControlPID", "ActiveEnterTimestamp", "FragmentPath", "DropInPaths"),
    *("EnvironmentFiles", "Job", "StateChangeTimestampMonotonic"),
)
_FOLDER = "/etc/systemd/system"
_WANTS = (".wants", ".requires", ".upholds")  # Folders whose links name the units to start.
# Places of units and drop-ins made by hand; those under /usr/lib come with packages.
_BY_HAND = ("/etc/", "/run/", "/usr/local/")
# A secret of ours that systemd reads for a service at its start.
_CREDENTIAL = re.compile(r"^LoadCredential=[^:\n]+:(/etc/lockstep/secrets/\S+)$", re.MULTILINE)
_OURS = "/etc/lockstep/"
_SOCKET = ".socket"
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

    `question` has the "programs" of each unit by its name, which may be a pattern.

    A unit is "outdated" if it runs since before one of our drop-ins was written; drop-ins of others
    restart nothing. Secrets and variables of ours that it read at its start count, too, and so do
    its programs: a file that was changed by hand and put back leaves the restart key unchanged. A
    unit that has done its work, and a socket, has no process with a key, so its own file counts.

    Returns:
        Unit → systemd's properties, its restart key ("restart_key"), its boot "links", "outdated",
        and "settled": whether it has run for so long that its start is over.
    """
    boot, programs = _links(), question["programs"]
    return {
        name: {
            **state,
            "restart_key": running_restart_key(state),
            "outdated": _is_outdated(name, state, programs.get(name, ())),
            "links": sorted(boot.get(name, [])),
            "settled": _is_settled(units.unit_from_properties(state)),
        }
        for name, state in units.properties(programs, *_PROPERTIES).items()
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


def running_restart_key(state: Mapping[str, str]) -> str:
    """Return the restart key (LOCKSTEP_RESTART_KEY) of a unit's process; "" without one."""
    # A unit whose gate still waits for memory has no main process yet.
    for pid in (state.get("MainPID", "0"), state.get("ControlPID", "0")):
        with suppress(OSError):
            return process_liveness.variables(pid).get("LOCKSTEP_RESTART_KEY", "")
    return ""


def _links() -> dict[str, list[str]]:
    """Return the boot links of each unit, wherever they were made."""
    links: dict[str, list[str]] = {}
    for root, folders, files in os.walk(_FOLDER):
        for name in (*files, *folders) if root.endswith(_WANTS) else ():
            links.setdefault(name, []).append(os.path.join(root, name))
    return links


def _since(state: Mapping[str, str]) -> int | None:
    """Return the start of an active unit, seconds of Unix time."""
    since = state.get("ActiveEnterTimestamp", "").removeprefix("@")
    return int(since) if state.get("ActiveState") == "active" and since.isdigit() else None


def _is_written_after(path: str, since: int) -> bool:
    """Tell whether a file was written after a start.

    The start is known to the second; a file that was written in that second counts as read.
    """
    return os.stat(path).st_mtime >= since + 1


def _is_outdated(name: str, state: Mapping[str, str], programs: Sequence[str]) -> bool:
    since, read_files = _since(state), state.get("DropInPaths", "").split()
    drop_ins = glob.glob(f"{_FOLDER}/{name}.d/*.conf")
    own_drop_ins = [path for path in drop_ins if is_marked(Path(path))]
    is_socket = name.endswith(_SOCKET) and is_marked(Path(state.get("FragmentPath") or "/"))
    if state.get("SubState") == "exited" or is_socket:
        read_files.append(state["FragmentPath"])
        own_drop_ins.append(state["FragmentPath"])
    at_start = _CREDENTIAL.findall(text(state.get("FragmentPath", "")) or "")
    at_start += [path for path in units.environment_files(state) if path.startswith(_OURS)]
    # A unit that has done its work holds no program.
    at_start += programs if state.get("SubState") == "running" else ()
    at_start = [path for path in at_start if os.path.exists(path)]
    read_files += at_start
    own_drop_ins += at_start
    try:
        return since is not None and any(
            # A drop-in that systemd does not name was never read.
            path not in read_files or _is_written_after(path, since)
            for path in own_drop_ins
        )
    except OSError:
        return False


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


def changes_by_hand(question: dict[str, Any]) -> Facts:
    """Yield drop-ins, and files newer than the process that reads them.

    `question` has units of "ours" and of the "system", the deploy's "files", and the paths that a
    service "reads" once, at its start (service → paths).
    """
    own_units = question["ours"]
    for name, state in units.properties([*own_units, *question["system"]], *_PROPERTIES).items():
        if state["LoadState"] == "not-found":
            continue
        for path in state["DropInPaths"].split():
            if path.startswith(_BY_HAND) and path not in question["files"]:
                yield "drop-in", f"{name} {path}", "present"
        # systemd reads a timer again whenever it reads its units.
        if not name.endswith(".timer"):
            # A unit of ours is compared by its restart key, which knows the changes that need no
            # restart.
            own = (
                [] if name in own_units and not name.endswith(_SOCKET) else [state["FragmentPath"]]
            )
            reads = [] if state["SubState"] == "exited" else question["reads"].get(name, [])
            yield from _files_newer_than_start(name, state, [*own, *reads])


def _files_newer_than_start(
    name: str, state: Mapping[str, str], reads: Sequence[str]
) -> Iterator[Fact]:
    """Yield files that were written after the start of the unit that reads them."""
    since = _since(state)
    if since is None:
        return
    places = (*reads, *state["DropInPaths"].split(), *units.environment_files(state))
    for path in dict.fromkeys(file for place in places for file in paths_below(place)):
        if _is_written_after(path, since):
            yield "older process", f"{name} {path}", "started before"


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
