"""What is alive of an engine that counts as stopped, by the kernel's word alone.

systemd calls a unit inactive whose process survived SIGKILL, and Docker may not answer. Gate,
switch and port look at the same control groups.
"""

from __future__ import annotations

from lockstep.onhost.core import config, layout
from lockstep.onhost.docker import container_group
from lockstep.onhost.systemd import units


def processes(target: config.Target, paths: layout.Paths) -> list[int]:
    """Process ids in the control groups of a target's unit and of its container."""
    return [
        *units.processes(target.unit, paths.proc),
        *container_group.processes(target.container, paths),
    ]


def left_of(target: config.Target, paths: layout.Paths) -> list[str]:
    """What is alive of a target whose unit is stopped, in words."""
    said = []
    if left := units.processes(target.unit, paths.proc):
        said.append(f"processes {', '.join(map(str, left))} of stopped {target.unit}")
    if inside := container_group.processes(target.container, paths):
        said.append(
            f"processes {', '.join(map(str, inside))} in container {target.container} "
            f"outlived {target.unit}"
        )
    return said
