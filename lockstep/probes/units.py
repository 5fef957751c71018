"""State of systemd units. Argument: {"units": ["vllm.service", …]}.

`generation` is what the running process was started with (LOCKSTEP_GENERATION of its environment),
so that a restart that is due is seen from the unit itself, whoever changed its files and when.
"""

from __future__ import annotations

import glob
import os
import subprocess
from typing import Any

PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,Result,UnitFileState,NeedDaemonReload,MainPID,ControlPID,"
    "ActiveEnterTimestamp,DropInPaths,Job"
)


def generation(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb") as text:
            pairs = (item.partition(b"=") for item in text.read().split(b"\0"))
            return {key: value for key, _, value in pairs}.get(b"LOCKSTEP_GENERATION", b"").decode()
    except OSError:
        return ""


def links(units: set[str]) -> dict[str, list[str]]:
    """Boot links of each unit, wherever they were made."""
    found: dict[str, list[str]] = {}
    for root, folders, files in os.walk("/etc/systemd/system"):
        if not root.endswith((".wants", ".requires", ".upholds")):
            continue
        for name in (*files, *folders):
            if name in units:
                found.setdefault(name, []).append(os.path.join(root, name))
    return found


def outdated(state: dict[str, Any]) -> bool:
    """Whether a unit runs since before one of our drop-ins was written; others' restart nothing."""
    since = state.get("ActiveEnterTimestamp", "").removeprefix("@")
    if state.get("ActiveState") != "active" or not since.isdigit():
        return False
    read = state.get("DropInPaths", "").split()
    try:
        # Timestamps are whole seconds: what was written in that second counts as read, where
        # systemd names it.
        return any(
            path not in read or os.stat(path).st_mtime >= int(since) + 1
            for path in glob.glob(f"/etc/systemd/system/{state['Id']}.d/*lockstep*.conf")
        )
    except OSError:
        return False


def main(asked: dict[str, Any]) -> dict[str, Any]:
    names = asked["units"]
    done = subprocess.run(
        ["systemctl", "show", "--timestamp=unix", "-p", PROPERTIES, *names],
        capture_output=True,
        text=True,
        check=False,
    )
    states: dict[str, Any] = {}
    for block in done.stdout.strip().split("\n\n"):
        state: dict[str, Any] = dict(line.partition("=")[::2] for line in block.splitlines())
        if state.get("Id"):
            # A unit whose gate still waits for memory has no main process yet.
            pids = [state.get(name, "0") for name in ("MainPID", "ControlPID")]
            state["generation"] = next((generation(pid) for pid in pids if pid != "0"), "")
            state["outdated"] = outdated(state)
            states[state["Id"]] = state
    boot = links(set(names))
    for name, state in states.items():
        state["links"] = sorted(boot.get(name, []))
    return states
