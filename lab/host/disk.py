"""A host's disk: an overlay on the shared root, empty after a wipe.

A copied lab's disks lie on those of the lab they were copied from as well (``lab.copy``).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from pathlib import Path

from lab.core.run import run
from lab.core.state import CONTROL_ADDRESS, Host, Lab

#: Docker cannot keep its layers on an overlay, so these are folders of the real file system.
OUTSIDE = {"docker": "/var/lib/docker", "containerd": "/var/lib/containerd"}
#: The folder in which the host sees the files that the supervisor keeps for it.
SEEN_AS = "/usr/lib/lockstep-lab/host"
_SPARK = 1000
#: Prefix that no lab's name has.
DELETED = ".deleted-"


def mount(lab: Lab, host: Host, base: Path, lab_hosts: tuple[Host, ...]) -> bool:
    """Mount the disk. Return True for a fresh host: an empty disk, or one made on another root."""
    folder = lab.host_folder(host)
    mark = folder / "base"
    if not mark.exists() or mark.read_text() != str(base):
        wipe(lab, host)
    for name in ("upper", "work", "root", "kept", *OUTSIDE):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lower = ":".join(str(path) for path in (*below(lab, host), base))
    layers = f"lowerdir={lower},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    root = folder / "root"
    run(["mount", "-t", "overlay", f"lockstep-{lab.name}-{host.name}", "-o", layers, str(root)])
    fresh = not mark.exists()
    if fresh:
        _personalise(lab, host, root, lab_hosts)
        mark.write_text(str(base))
    return fresh


def wipe(lab: Lab, host: Host) -> None:
    """Make the (unmounted) disk empty at once; ``empty_trash`` frees the space."""
    folder = lab.host_folder(host)
    trash = lab.state / "trash" / uuid.uuid4().hex
    trash.mkdir(parents=True)
    for name in ("base", "below"):
        (folder / name).unlink(missing_ok=True)
    for name in ("upper", "work", *OUTSIDE):
        if (folder / name).exists():
            (folder / name).rename(trash / name)


def below(lab: Lab, host: Host) -> tuple[Path, ...]:
    """Disks of other labs that this one lies on, uppermost first; () unless it was copied."""
    target_path = lab.host_folder(host) / "below"
    return tuple(map(Path, target_path.read_text().splitlines())) if target_path.exists() else ()


def empty_trash(lab: Lab) -> None:
    """Delete the leftovers of wiped hosts."""
    shutil.rmtree(lab.state / "trash", ignore_errors=True)


def delete(lab: Lab) -> None:
    """Remove all files of a lab at once, its log too; the space comes free in a while.

    A process of its own frees the space. It takes minutes where the file system tells the disk of
    each block (mount option `discard`). It also frees what an earlier, killed process left.
    """
    folder = lab.state.parent
    if lab.state.exists():
        lab.state.rename(folder / f"{DELETED}{uuid.uuid4().hex}")
    leftover_paths = [str(path) for path in folder.glob(f"{DELETED}*")]
    if leftover_paths:
        subprocess.Popen(
            ["nice", "rm", "-rf", "--one-file-system", "--", *leftover_paths],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def unmount(lab: Lab, host: Host) -> None:
    """Unmount the disk; files that a dead guest still held go with its last process."""
    root = lab.host_folder(host) / "root"
    if os.path.ismount(root):
        run(["umount", str(root)])


def remove_export(folder: Path) -> None:
    """Remove the folder that a killed systemd-nspawn left; with it none of that name would boot."""
    if os.path.ismount(folder):
        run(["umount", "--lazy", str(folder)])
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()


def unmount_all(lab: Lab) -> None:
    """Unmount whatever a crashed lab left mounted below its folder, innermost first."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [point for point in mounts if Path(point).is_relative_to(lab.state)]
    for point in sorted(below, key=len, reverse=True):
        run(["umount", "--lazy", point])


def _personalise(lab: Lab, host: Host, root: Path, lab_hosts: tuple[Host, ...]) -> None:
    """Give a fresh host its name, identity, host keys and login."""
    (root / "etc/hostname").write_text(host.name + "\n")
    (root / "etc/hosts").write_text(_names(host, lab_hosts))
    (root / "etc/resolv.conf").write_text(f"nameserver {CONTROL_ADDRESS}\noptions attempts:1\n")
    (root / "etc/machine-id").write_text(uuid.uuid4().hex + "\n")
    run(["ssh-keygen", "-q", "-A", "-f", str(root)])
    keys = root / "home/spark/.ssh"
    keys.mkdir(mode=0o700)
    (keys / "authorized_keys").write_text(lab.key.with_suffix(".pub").read_text())
    for path in (keys, keys / "authorized_keys"):
        os.chown(path, _SPARK, _SPARK)


def _names(host: Host, lab_hosts: tuple[Host, ...]) -> str:
    lines = ["127.0.0.1 localhost", f"127.0.1.1 {host.name}", f"{CONTROL_ADDRESS} control"]
    lines += [f"{peer.address} {peer.name}" for peer in lab_hosts if peer != host]
    return "\n".join([*lines, "::1 localhost ip6-localhost ip6-loopback"]) + "\n"


def host_keys(lab: Lab, host: Host) -> list[str]:
    """Lines for known_hosts that pin the keys of ``host``'s sshd, by address and by name."""
    layers = (lab.host_folder(host) / "upper", *below(lab, host))
    keys = {
        key.name: key
        for layer in reversed(layers)
        for key in (layer / "etc/ssh").glob("ssh_host_*_key.pub")
    }
    return [
        f"{host.address},{host.name} {' '.join(keys[name].read_text().split()[:2])}"
        for name in sorted(keys)
    ]


def write_known_hosts(lab: Lab, lab_hosts: tuple[Host, ...]) -> None:
    """Write the lab's known_hosts anew, in one step."""
    lines = [line for host in lab_hosts for line in host_keys(lab, host)]
    new = lab.known_hosts.with_name("known_hosts.new")
    new.write_text("\n".join(lines) + "\n")
    new.replace(lab.known_hosts)
