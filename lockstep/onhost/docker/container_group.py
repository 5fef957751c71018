"""Who is alive in an engine's container, known to the kernel while Docker answers or not.

Docker makes each container's control group below the slice that its unit names (`--cgroup-parent`),
so the processes are found by the container's name alone: nothing is asked of a daemon that may hang
when memory is short, and no id is kept that another process may have got meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lockstep.onhost.core import clock, errors, layout

#: The slice of all engines in containers: below system.slice, as everything that Docker runs.
ALL = "system-lockstep"


def slice_of(container: str) -> str:
    """The slice of one container of ours, below that of all.

    In a slice's name "-" stands for a level. No unit's name of ours has a ".".
    """
    return f"{ALL}-{container.replace('-', '.')}.slice"


def processes(container: str | None, paths: layout.Paths) -> list[int]:
    """Process ids inside the container; [] where none runs, and for None, a venv engine's.

    A container that an earlier Lockstep started has no slice of its own and is not seen.
    """
    found: list[int] = []
    if container is not None:
        for group in _groups(container, paths):
            for file in sorted(group.rglob("cgroup.procs")):
                found += _read(file)
    return sorted(found)


def end(container: str, paths: layout.Paths, wait_s: float) -> list[int]:
    """Kill all processes inside the container; which there were, [] for none.

    The kernel does it (cgroups(7), cgroup.kill, Linux 5.14), so Docker need not answer. Only root
    may. Problem where one is left after `wait_s` seconds.
    """
    killed = left = processes(container, paths)
    began = clock.now()
    while left:
        for group in _groups(container, paths):
            _kill(group)
        left = processes(container, paths)
        if left and clock.now() - began >= wait_s:
            raise errors.Problem(
                f"processes {', '.join(map(str, left))} of container {container} are alive "
                f"{wait_s:.0f} s after they were killed: they hang in the kernel. Remedy: reboot"
            )
        if left:
            clock.sleep(0.1)
    return killed


def _kill(group: Path) -> None:
    # Gone since it was listed.
    with suppress(FileNotFoundError):
        (group / "cgroup.kill").write_text("1", encoding="ascii")


def _groups(container: str, paths: layout.Paths) -> Iterator[Path]:
    # The second place is where Docker puts it that does not leave its groups to systemd.
    for parent in (paths.groups_of_units / f"{ALL}.slice", paths.groups_of_units.parent):
        if (group := parent / slice_of(container)).is_dir():
            yield group


def _read(file: Path) -> list[int]:
    try:
        return [int(line) for line in file.read_text(encoding="ascii").split()]
    except OSError:
        # Gone since it was listed.
        return []
