"""Living processes in an engine's container, as the kernel lists them even if Docker hangs.

Docker makes each container's control group below the slice that its unit names (`--cgroup-parent`).
So the container's name alone finds its processes. Nothing depends on a daemon that may hang when
memory is short, and no stored id can belong to another process by now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lockstep.onhost.core import clock, errors, layout

#: The slice of all engines in containers: below system.slice, as everything that Docker runs.
ALL = "system-lockstep"


def slice_of(container: str) -> str:
    """Return the slice of one container of ours, below the slice of all.

    In a slice's name "-" stands for a level. None of our units has a "." in its name.
    """
    return f"{ALL}-{container.replace('-', '.')}.slice"


def process_ids_of_container(container: str | None, paths: layout.Paths) -> list[int]:
    """Return the process ids inside the container; [] if none runs, and for None (a venv engine).

    A container that an earlier Lockstep started has no slice of its own and is not seen.
    """
    process_ids: list[int] = []
    if container is not None:
        for group in _control_groups_of_container(container, paths):
            for file in sorted(group.rglob("cgroup.procs")):
                process_ids += _process_ids(file)
    return sorted(process_ids)


def kill_processes(container: str, paths: layout.Paths, wait_s: float) -> list[int]:
    """Kill all processes inside the container, and return their ids; [] for none.

    The kernel does it (cgroups(7), cgroup.kill, Linux 5.14), so Docker need not answer. Only root
    may. Raises Problem if a process is left after `wait_s` seconds.
    """
    killed_processes = remaining = process_ids_of_container(container, paths)
    began = clock.now()
    while remaining:
        for group in _control_groups_of_container(container, paths):
            _kill_cgroup(group)
        remaining = process_ids_of_container(container, paths)
        if remaining and clock.now() - began >= wait_s:
            raise errors.Problem(
                f"processes {', '.join(map(str, remaining))} of container {container} are alive "
                f"{wait_s:.0f} s after they were killed: they hang in the kernel. Remedy: reboot"
            )
        if remaining:
            clock.sleep(0.1)
    return killed_processes


def _kill_cgroup(group: Path) -> None:
    # The group may be gone since it was listed.
    with suppress(FileNotFoundError):
        (group / "cgroup.kill").write_text("1", encoding="ascii")


def _control_groups_of_container(container: str, paths: layout.Paths) -> Iterator[Path]:
    # The second place is that of a Docker that does not leave its groups to systemd.
    for parent in (paths.groups_of_units / f"{ALL}.slice", paths.groups_of_units.parent):
        if (group := parent / slice_of(container)).is_dir():
            yield group


def _process_ids(file: Path) -> list[int]:
    try:
        return [int(line) for line in file.read_text(encoding="ascii").split()]
    except OSError:
        # The group may be gone since it was listed.
        return []
