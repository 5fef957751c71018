"""Removes whatever a lab left on the machine: after ``down``, and before ``up`` after a crash."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path

from lab.core.errors import LabError
from lab.core.state import Lab
from lab.host import cgroup, disk, network


def supervisor_alive(lab: Lab) -> bool:
    """Tell whether this lab's supervisor runs.

    Raises ``LabError`` when one of the same name runs for another state folder.
    """
    try:
        handle = os.open(lab.supervisor_lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        owner = json.loads(os.pread(handle, 4096, 0) or b"{}")
        if owner.get("state", str(lab.state)) != str(lab.state):
            raise LabError(
                f"network namespace {lab.namespace} belongs to the lab in {owner['state']}",
                "Take that one down, or choose another name with --name.",
            ) from None
        return True
    finally:
        os.close(handle)


def clean(lab: Lab, keep_own_group: bool = False) -> None:
    """Kill the lab's processes and remove its namespaces, mounts and groups; disks stay.

    ``keep_own_group`` is for the supervisor itself, which cannot remove the group it is in.
    """
    lab.description.unlink(missing_ok=True)
    for child in ("hosts",) if keep_own_group else (".",):
        cgroup.destroy(lab, child)
    network.remove_all(lab)
    disk.unmount_all(lab)
    # systemd-nspawn keeps a folder per machine that a killed one does not remove.
    for folder in Path("/run/systemd/nspawn/propagate").glob(f"{lab.name}-spark*"):
        with contextlib.suppress(OSError):
            folder.rmdir()
    for path in lab.runtime.glob("*.notify"):
        path.unlink(missing_ok=True)
    lab.control_socket.unlink(missing_ok=True)
