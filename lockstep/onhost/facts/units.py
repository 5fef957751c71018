"""systemd: units and what they run, boot links, drop-ins, failures.

`generation` is what the running process was started with (LOCKSTEP_GENERATION of its environment),
so that a restart that is due is seen from the unit itself, whoever changed its files and when.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.facts.reading import Fact, Facts, below, output, states, text
from lockstep.onhost.records import boots, ended
from lockstep.onhost.records.ours import marked

_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,Result,UnitFileState,NeedDaemonReload,MainPID,ControlPID,"
    "ActiveEnterTimestamp,FragmentPath,DropInPaths,EnvironmentFiles,Job"
)
_FOLDER = "/etc/systemd/system"
_WANTS = (".wants", ".requires", ".upholds")  # Folders whose links say what starts what.
# Where somebody puts a unit or a drop-in; those under /usr/lib come with packages.
_BY_HAND = ("/etc/", "/run/", "/usr/local/")
# A secret of ours that systemd reads for a service when it starts it.
_CREDENTIAL = re.compile(r"^LoadCredential=[^:\n]+:(/etc/lockstep/secrets/\S+)$", re.MULTILINE)
_OURS = "/etc/lockstep/"
_SOCKET = ".socket"
_RUNNING = ("active", "activating", "reloading")
#: What a service of the system is that runs and comes with a boot, and one that only runs.
ON, OFF_AT_BOOT = "on", "off at boot"
# What starts a service when it is asked for: Ubuntu's sshd waits for its socket instead of a boot.
_SOCKETS = {"ssh.service": "ssh.socket"}
# Until the next boot is not at it.
_NOT_ENABLED = ("disabled", "enabled-runtime")


def read(programs: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Unit → systemd's properties, its "generation", its boot "links", and whether it is
    "outdated": it runs since before one of our drop-ins was written; others' restart nothing. So it
    is where secrets or variables of ours were written that it read at its start, or one of its
    `programs`: what was changed by hand and put back has the same generation. One that has done its
    work, and a socket, has no process with a generation: its own file counts, too."""
    boot = _links()
    return {
        name: {
            **state,
            "generation": generation(state),
            "outdated": _outdated(name, state, programs.get(name, ())),
            "links": sorted(boot.get(name, [])),
        }
        for name, state in _show([*programs]).items()
    }


def _show(names: Sequence[str]) -> dict[str, dict[str, str]]:
    argv = ("systemctl", "show", "--timestamp=unix", f"--property={_PROPERTIES}")
    return states(output(*argv, "--", *names))


def generation(state: Mapping[str, str]) -> str:
    """LOCKSTEP_GENERATION of a unit's process; "" without one."""
    # A unit whose gate still waits for memory has no main process yet.
    for pid in (state.get("MainPID", "0"), state.get("ControlPID", "0")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as variables:
                pairs = (item.partition(b"=") for item in variables.read().split(b"\0"))
                values = {key: value for key, _, value in pairs}
        except OSError:
            continue
        return values.get(b"LOCKSTEP_GENERATION", b"").decode()
    return ""


def _links() -> dict[str, list[str]]:
    """Unit → its boot links, wherever they were made."""
    found: dict[str, list[str]] = {}
    for root, folders, files in os.walk(_FOLDER):
        for name in (*files, *folders) if root.endswith(_WANTS) else ():
            found.setdefault(name, []).append(os.path.join(root, name))
    return found


def _since(state: Mapping[str, str]) -> int | None:
    """When an active unit was started, seconds of Unix time."""
    since = state.get("ActiveEnterTimestamp", "").removeprefix("@")
    return int(since) if state.get("ActiveState") == "active" and since.isdigit() else None


def _newer(path: str, since: int) -> bool:
    """Whether a file was written after a start, which is known to the second: what was written in
    that second counts as read."""
    return os.stat(path).st_mtime >= since + 1


def _environment(state: Mapping[str, str]) -> list[str]:
    """Files of variables that a unit reads when it starts."""
    return [line.partition(" (")[0] for line in state.get("EnvironmentFiles", "").splitlines()]


def _outdated(name: str, state: Mapping[str, str], programs: Sequence[str]) -> bool:
    since, read_files = _since(state), state.get("DropInPaths", "").split()
    drop_ins = glob.glob(f"{_FOLDER}/{name}.d/*.conf")
    ours = [path for path in drop_ins if marked(Path(path))]
    is_socket = name.endswith(_SOCKET) and marked(Path(state.get("FragmentPath") or "/"))
    if state.get("SubState") == "exited" or is_socket:
        read_files.append(state["FragmentPath"])
        ours.append(state["FragmentPath"])
    at_start = _CREDENTIAL.findall(text(state.get("FragmentPath", "")) or "")
    at_start += [path for path in _environment(state) if path.startswith(_OURS)]
    # One that has done its work holds no program.
    at_start += programs if state.get("SubState") == "running" else ()
    at_start = [path for path in at_start if os.path.exists(path)]
    read_files += at_start
    ours += at_start
    try:
        return since is not None and any(
            # One that systemd does not name is not read at all.
            path not in read_files or _newer(path, since)
            for path in ours
        )
    except OSError:
        return False


def system_services(names: Sequence[str]) -> dict[str, str]:
    """Service of the system → `ON`, or what it lacks of that; without those that are not there."""
    links = _links()
    shown = _show([*names, *(socket for name, socket in _SOCKETS.items() if name in names)])
    found = {}
    for name in names:
        states = [shown[each] for each in (name, _SOCKETS.get(name)) if each in shown]
        if not states or states[0]["LoadState"] == "not-found":
            continue
        lacks = [] if any(map(_is_up, states)) else [states[0]["ActiveState"]]
        if states[0]["LoadState"] == "masked":
            lacks.append("masked")
        elif all(_is_off_at_boot(state, links) for state in states):
            lacks.append(OFF_AT_BOOT)
        found[name] = ", ".join(lacks) or ON
    return found


def _is_up(state: Mapping[str, str]) -> bool:
    return state["ActiveState"] in _RUNNING


def _is_off_at_boot(state: Mapping[str, str], links: Mapping[str, Sequence[str]]) -> bool:
    """Whether a boot does not start a unit that could be enabled; a static one cannot."""
    if state["LoadState"] != "loaded":
        return True
    return state["UnitFileState"] in _NOT_ENABLED and state["Id"] not in links


def every(asked: dict[str, Any]) -> Facts:
    """The deploy's units, and those of the system that it concerns. Asked: Units of "ours" and of
    the "system", the deploy's "files", and what a service "reads" once, when it starts (service →
    paths).
    """
    ours = asked["ours"]
    links = _links()
    for name, words in system_services(asked["system"]).items():
        yield "system service", name, words
    for name, state in _show([*ours, *asked["system"]]).items():
        if state["LoadState"] == "not-found":
            continue
        running = _is_up(state)
        if name in ours:
            yield "unit", name, state["LoadState"]
            linked = state["UnitFileState"].startswith("enabled") or name in links
            yield "boot", name, "yes" if linked else "no"
            if state["FragmentPath"]:
                yield "unit path", name, state["FragmentPath"]
            yield "running", name, "yes" if running else state["ActiveState"]
        if running and state["SubState"] != "auto-restart":
            yield "generation", name, generation(state)
        if state["NeedDaemonReload"] == "yes":
            yield "unread unit", name, "changed"
        for path in state["DropInPaths"].split():
            if path.startswith(_BY_HAND) and path not in asked["files"]:
                yield "drop-in", f"{name} {path}", "present"
        # A timer is read again whenever systemd reads its units.
        if not name.endswith(".timer"):
            # A unit of ours is compared by its restart key, which knows what needs no restart.
            own = [] if name in ours and not name.endswith(_SOCKET) else [state["FragmentPath"]]
            reads = [] if state["SubState"] == "exited" else asked["reads"].get(name, [])
            yield from _older(name, state, [*own, *reads])


def _older(name: str, state: Mapping[str, str], reads: Sequence[str]) -> Iterator[Fact]:
    """Files that were written after the unit that reads them was started."""
    since = _since(state)
    if since is None:
        return
    places = (*reads, *state["DropInPaths"].split(), *_environment(state))
    for path in dict.fromkeys(file for place in places for file in below(place)):
        if _newer(path, since):
            yield "older process", f"{name} {path}", "started before"


def at_boot(asked: dict[str, Any]) -> Facts:
    """What starts at boot, or may not start at all: read from the links that systemd reads, but for
    those of units that are "known", because another kind tells of them."""
    for folder in (_FOLDER, "/run/systemd/system"):
        for path in below(folder):
            name, place = os.path.basename(path), os.path.dirname(path)
            if not os.path.islink(path) or name in asked["known"]:
                continue
            if os.readlink(path) == "/dev/null":
                yield "service", name, "masked"
            elif place.endswith(_WANTS):
                yield "service", f"{name} for {os.path.basename(place)}", "on"
            else:
                yield "service", name, f"is {os.path.basename(os.readlink(path))}"


def failed(_: object) -> Facts:
    """Units that systemd gave up."""
    listed = output("systemctl", "list-units", "--failed", "--no-legend", "--plain", "--no-pager")
    for line in listed.splitlines():
        name = line.split()[0]
        why = boots.not_hot(layout.Paths()) if name == boots.UNIT else None
        yield "failed unit", name, why or "failed"


def ended_engines(_: object) -> Facts:
    """Engines that the memory floor has ended, and that nobody has made hot again."""
    for each in ended.every(layout.Paths()):
        yield "ended engine", each.unit, each.reason
