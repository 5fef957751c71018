"""Control groups: each lab's processes are in a group of their own, so that none is ever lost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from lab.core.errors import LabError
from lab.core.state import Host, Lab


def hierarchies(mounts: str) -> dict[str, Path]:
    """Mount point of each hierarchy in the text of /proc/mounts.

    The key is ``v2``, a controller's name, or ``name=systemd``.
    """
    mount_points = {}
    for line in mounts.splitlines():
        _, point, kind, options, *_ = line.split()
        if kind == "cgroup2":
            mount_points["v2"] = Path(point)
        elif kind == "cgroup":
            mount_points[options.split(",")[-1]] = Path(point)
    return mount_points


def mounted_hierarchies() -> dict[str, Path]:
    """The hierarchies of this machine."""
    return hierarchies(Path("/proc/mounts").read_text())


def make_everywhere(lab: Lab, child: str) -> list[Path]:
    """Create the group ``child`` of the lab in every hierarchy; returns the folders.

    A host with version 1 groups needs them all, because it must not see the machine's own.
    """
    groups = []
    for controller, point in mounted_hierarchies().items():
        group = point
        for part in (lab.namespace, *child.split("/")):
            group = group / part
            group.mkdir(exist_ok=True)
            if controller == "cpuset":
                for setting in ("cpuset.cpus", "cpuset.mems"):
                    (group / setting).write_text((group.parent / setting).read_text())
        groups.append(group)
    return groups


def has_version_1() -> bool:
    """Tell whether this machine's memory controller is a version 1 hierarchy."""
    return "memory" in mounted_hierarchies()


def make(lab: Lab, child: str) -> Path:
    """Create the group ``child`` of the lab in the v2 hierarchy; returns its folder."""
    point = mounted_hierarchies().get("v2")
    if point is None:
        raise LabError(
            "no cgroup2 file system is mounted on this machine",
            "Mount one: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified",
        )
    group = point
    for part in (lab.namespace, *child.split("/")):
        _share_controllers(group)
        group = group / part
        group.mkdir(exist_ok=True)
    return group


def _share_controllers(group: Path) -> None:
    """Let the groups below ``group`` set limits, where the machine's controllers are version 2."""
    for controller in ("cpu", "memory", "pids"):
        with contextlib.suppress(OSError):
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def processes(group: Path) -> Iterator[int]:
    """Ids of all processes in ``group`` and the groups below it."""
    for folder, _, _ in os.walk(group):
        with contextlib.suppress(OSError):
            for line in (Path(folder) / "cgroup.procs").read_text().split():
                yield int(line)


def guest_init(group: Path) -> int | None:
    """The id, on this machine, of process number 1 in the guest of ``group``, if it runs."""
    for process in processes(group):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process}/status").read_text()
            ids = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
            if len(ids) > 2 and ids[-1] == "1" and len(ids) == _depth() + 2:
                return process
    return None


def _depth() -> int:
    """The depth of this process in process namespaces: 1 on a plain machine."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("NSpid:"))
    return len(line.split()) - 1


def host_group(host: Host) -> str:
    """Name of a host's group below the lab's."""
    return f"hosts/{host.name}"


#: Longest wait for killed processes to be gone, in seconds: the last one of a host writes its disk
#: back, which took more than 20 on a machine that several labs deployed to (seen 2026-11-21).
END_LIMIT = 120.0


def destroy(lab: Lab, child: str = ".", limit: float = END_LIMIT) -> None:
    """Kill every process of the lab's group ``child`` and remove it from all hierarchies.

    Raises ``LabError`` when a process survives ``limit`` seconds, or a group cannot be removed.
    """
    groups = [point / lab.namespace / child for point in mounted_hierarchies().values()]
    give_up = time.monotonic() + limit
    while True:
        alive = {process for group in groups for process in processes(group)}
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        # The kernel keeps a group while a process in it is ending, and lists that process no more.
        # A host's group that stayed would take no process at the next boot, because the guest's
        # systemd gave it controllers for groups below.
        if not alive and all([_remove(group) for group in groups]):
            return
        if time.monotonic() > give_up:
            if alive:
                raise LabError(f"processes {sorted(alive)} do not die within {limit:.0f} s")
            kept_groups = ", ".join(str(group) for group in groups if group.exists())
            raise LabError(
                f"the kernel does not remove {kept_groups} within {limit:.0f} s",
                "A process in it is ending: see dmesg, or restart this machine.",
            )
        time.sleep(0.02)


def _remove(group: Path) -> bool:
    """Remove ``group`` and all below it; False while the kernel keeps one."""
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return not group.exists()
