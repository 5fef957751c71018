"""Makes a lab whose hosts begin in the state of another lab's hosts: deployed in seconds, say.

The disks are overlays, not copies, so the other lab must stay down, and must not be deleted,
while copies of it exist.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lab import heal
from lab.core.errors import LabError
from lab.core.run import run
from lab.core.state import Host, Lab
from lab.host import disk


def copies(lab: Lab) -> list[str]:
    """Names of the labs whose disks lie on those of ``lab``."""
    names = set()
    for target_path in lab.state.parent.glob("*/hosts/*/below"):
        name = target_path.relative_to(lab.state.parent).parts[0]
        layers = map(Path, target_path.read_text().splitlines())
        if not name.startswith(disk.DELETED) and any(
            layer.is_relative_to(lab.state) for layer in layers
        ):
            names.add(name)
    return sorted(names)


def require_no_copies(lab: Lab) -> None:
    """``LabError`` when disks of other labs lie on those of ``lab``."""
    if names := copies(lab):
        raise LabError(
            f"the disks of lab {lab.name!r} are also those of {', '.join(names)}",
            "Delete first (lockstep lab down --delete --name NAME): " + ", ".join(names),
        )


def make(source: Lab, target: Lab) -> None:
    """Make ``target``, which is not there yet, of ``source``, which is down.

    Servers, logs, locks and the operator's key are copied too, so that nothing tells them apart
    but their names.

    Raises ``LabError`` when there is no such source, when it is up, or when the target exists.
    """
    if target.name == source.name:
        raise LabError("a copy has a name of its own", "Choose one with --name.")
    if not (source.state / "hosts").is_dir():
        lab_names = ", ".join(_lab_names(source)) or "none"
        raise LabError(f"there is no lab {source.name!r}", f"Known: {lab_names}.")
    if heal.supervisor_alive(source):
        raise LabError(
            f"lab {source.name!r} is up; its disks change",
            f"Take it down first (lockstep lab down --name {source.name}).",
        )
    if target.state.exists() and any(target.state.iterdir()):
        raise LabError(
            f"there is a lab {target.name!r} already",
            f"Delete it first (lockstep lab down --delete --name {target.name}).",
        )
    new = target.state.with_name(f"{disk.DELETED}{target.name}")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for path in source.state.iterdir():
        if path.name not in ("hosts", "trash", source.description.name):
            _copy(path, new)
    for folder in sorted((source.state / "hosts").iterdir()):
        _copy_host(source, Host(int(folder.name.removeprefix("spark"))), new / "hosts")
    if target.state.exists():
        target.state.rmdir()
    new.rename(target.state)


def _copy_host(source: Lab, host: Host, hosts: Path) -> None:
    old, new = source.host_folder(host), hosts / host.name
    new.mkdir(parents=True)
    for name in ("base", *disk.OUTSIDE):
        if (old / name).exists():
            _copy(old / name, new)
    layers = (old / "upper", *disk.below(source, host))
    (new / "below").write_text("".join(f"{layer}\n" for layer in layers))


def _copy(path: Path, folder: Path) -> None:
    # The copy keeps owners, device nodes and extended attributes.
    run(["cp", "--archive", "--reflink=auto", "--", str(path), str(folder)])


def _lab_names(lab: Lab) -> list[str]:
    return sorted(path.parent.name for path in lab.state.parent.glob("[!.]*/hosts"))
