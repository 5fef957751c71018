"""systemd: the deploy's units and what they run, boot links, drop-ins, failures."""

from __future__ import annotations

import os
from collections.abc import Iterable

from lockstep.snapshot.collected import Collected, below, output

_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload,MainPID,ControlPID,"
    "ActiveEnterTimestamp,FragmentPath,DropInPaths,EnvironmentFiles"
)
# Folders whose links say what starts what.
WANTS = (".wants", ".requires", ".upholds")
# Where somebody puts a unit or a drop-in; those under /usr/lib come with packages.
_BY_HAND = ("/etc/", "/run/")


def units(found: Collected) -> None:
    """The deploy's units, and those of the system that it concerns."""
    ours = found.asked["units"]
    states = _show([*ours, *found.asked["system_units"]])
    links = _links()
    for name, state in states.items():
        if state["LoadState"] == "not-found":
            continue
        found.put("unit", name, state["LoadState"])
        if name in ours:
            linked = state["UnitFileState"].startswith("enabled") or name in links
            found.put("boot", name, "yes" if linked else "no")
            if state["FragmentPath"]:
                found.put("unit path", name, state["FragmentPath"])
        running = state["ActiveState"] in ("active", "activating", "reloading")
        kind = "running" if name in ours else "system service"
        found.put(kind, name, "yes" if running else state["ActiveState"])
        if running and state["SubState"] != "auto-restart":
            found.put("generation", name, _generation(state))
        if state["NeedDaemonReload"] == "yes":
            found.put("unread unit", name, "changed")
        for path in state["DropInPaths"].split():
            if path.startswith(_BY_HAND) and path not in found.asked["files"]:
                found.put("drop-in", f"{name} {path}", "present")
        if running:
            _older(found, name, state)


def _older(found: Collected, name: str, state: dict[str, str]) -> None:
    """Files that were written after the unit that reads them was started."""
    since = state["ActiveEnterTimestamp"].removeprefix("@")
    # A timer is read again whenever systemd reads its units.
    if state["ActiveState"] != "active" or not since.isdigit() or name.endswith(".timer"):
        return
    environment = [line.partition(" (")[0] for line in state["EnvironmentFiles"].splitlines()]
    # A unit of ours is compared by its restart key, which knows what needs no restart.
    unit = [] if name in found.asked["units"] else [state["FragmentPath"]]
    reads = [
        *(*unit, *state["DropInPaths"].split(), *environment),
        *found.asked["reads"].get(name, []),
    ]
    files = [file for path in reads for file in below(path)]
    for path in dict.fromkeys(files):
        # A start is known to the second: what was written in that second counts as read.
        if os.stat(path).st_mtime >= int(since) + 1:
            found.put("older process", f"{name} {path}", "started before")


def boot(found: Collected) -> None:
    """What starts at boot, or may not start at all: read from the links that systemd reads."""
    ours = {*found.asked["units"]}
    for folder in ("/etc/systemd/system", "/run/systemd/system"):
        for path in below(folder):
            name = os.path.basename(path)
            if not os.path.islink(path) or name in ours:
                continue
            if os.readlink(path) == "/dev/null":
                found.put("service", name, "masked")
            elif os.path.dirname(path).endswith(WANTS):
                found.put("service", f"{name} for {os.path.basename(os.path.dirname(path))}", "on")
            else:
                found.put("service", name, f"is {os.path.basename(os.readlink(path))}")


def failed(found: Collected) -> None:
    """Units that systemd gave up."""
    listed = output("systemctl", "list-units", "--failed", "--no-legend", "--plain", "--no-pager")
    for line in listed.splitlines():
        found.put("failed unit", line.split()[0], "failed")


def _show(names: Iterable[str]) -> dict[str, dict[str, str]]:
    told = output("systemctl", "show", "--timestamp=unix", "-p", _PROPERTIES, *names)
    states = {}
    for block in told.strip().split("\n\n"):
        state: dict[str, str] = dict.fromkeys(_PROPERTIES.split(","), "")
        for line in block.splitlines():
            key, _, value = line.partition("=")
            # EnvironmentFiles comes once per file.
            state[key] = f"{state[key]}\n{value}".strip() if state.get(key) else value
        states[state["Id"]] = state
    return states


def _links() -> set[str]:
    """Names of units that something wants at boot, wherever the link is."""
    return {
        os.path.basename(path)
        for path in below("/etc/systemd/system")
        if os.path.dirname(path).endswith(WANTS)
    }


def _generation(state: dict[str, str]) -> str:
    """LOCKSTEP_GENERATION of the running process."""
    for pid in (state["MainPID"], state["ControlPID"]):
        try:
            with open(f"/proc/{pid}/environ", "rb") as text:
                pairs = (item.partition(b"=") for item in text.read().split(b"\0"))
                values = {key: value for key, _, value in pairs}
        except OSError:
            continue
        return values.get(b"LOCKSTEP_GENERATION", b"").decode()
    return ""
