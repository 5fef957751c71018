"""Traits of the disk of a file by which it gives its data slowly, each with its remedy.

Read from the kernel's tables alone: its mounts, and the block devices behind one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NETWORK = re.compile(r"nfs4?|cifs|smb3|9p|ceph|lustre|fuse\.(?:sshfs|rclone|glusterfs|s3fs)")
# Mbit/s of USB 2. USB 3 has 5000 and more.
_USB_2 = 480
_LOCAL = "`paths.models` on a local disk, and a deploy, which copies the weights there"
_PLAIN = "Remedy: `paths.models` on a disk without that"


@dataclass(frozen=True)
class Mount:
    """One mount, as /proc/self/mountinfo has it; `device` is `MAJOR:MINOR`."""

    device: str
    place: str
    kind: str
    source: str
    options: frozenset[str]


def mounts(text: str) -> list[Mount]:
    """Parse a mountinfo; the last of two mounts at one place is the visible one."""
    found = []
    for line in text.splitlines():
        # proc(5): any number of optional fields stands before the lone dash.
        front, _, back = line.partition(" - ")
        fields, (kind, source, options) = front.split(), back.split(" ", 2)
        own_options = frozenset([*fields[5].split(","), *options.split(",")])
        found.append(Mount(fields[2], _decode_octal(fields[4]), kind, source, own_options))
    return found


def _decode_octal(path: str) -> str:
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), path)


def mount_of(path: Path, all_mounts: list[Mount]) -> Mount | None:
    """Return the mount that a file without links in its path is on.

    By its place and not by its device, because btrfs numbers each subvolume itself.
    """
    inside = [mount for mount in all_mounts if path.is_relative_to(mount.place)]
    deepest = max((len(mount.place) for mount in inside), default=0)
    return next((mount for mount in reversed(inside) if len(mount.place) == deepest), None)


def slow_port(mount: Mount, sys: Path) -> str | None:
    """Return that the mount's disk is on a port slower than any disk, with the remedy; or None."""
    for disk in _disks(mount, sys):
        speed = _usb_speed(disk)
        if speed is not None and speed <= _USB_2:
            return (
                f"{disk.name} is on a USB port of {speed} Mbit/s, which gives at most "
                f"{speed // 8} MB/s. Remedy: another port or cable of the Spark, of USB 3"
            )
    return None


def slow_traits(mount: Mount, sys: Path) -> Iterator[str]:
    """Yield why reading the mount may be slow, each with its remedy."""
    if port := slow_port(mount, sys):
        yield port
    if _NETWORK.fullmatch(mount.kind):
        yield f"a network disk ({mount.kind} from {mount.source}). Remedy: {_LOCAL}"
    for name in _crypt_names(mount, sys):
        yield f"encrypted ({name}). {_PLAIN}"
    if mount.kind == "zfs":
        yield f"ZFS, with a cache of its own: `zfs get compression {mount.source}`. {_PLAIN}"
    elif packing := sorted(word for word in mount.options if word.startswith("compress")):
        yield f"compressed ({mount.kind}, {packing[0]}), and weights do not shrink. {_PLAIN}"


def _block_device(mount: Mount, sys: Path) -> Path | None:
    """Return the folder of a mount's device in sysfs; btrfs has it by the name of the source."""
    by_number = sys / "dev/block" / mount.device
    by_name = sys / "class/block" / Path(mount.source).resolve().name
    return next((path.resolve() for path in (by_number, by_name) if path.exists()), None)


def _devices_behind(device: Path) -> Iterator[Path]:
    """Yield a block device and those that it is made of."""
    yield device
    for part in sorted((device / "slaves").glob("*")):
        yield from _devices_behind(part.resolve())


def _disks(mount: Mount, sys: Path) -> Iterator[Path]:
    """Yield the whole disks behind a mount."""
    device = _block_device(mount, sys)
    for part in _devices_behind(device) if device else ():
        if not any((part / "slaves").glob("*")):
            yield part.parent if (part / "partition").exists() else part


def _crypt_names(mount: Mount, sys: Path) -> Iterator[str]:
    device = _block_device(mount, sys)
    for part in _devices_behind(device) if device else ():
        if _text(part / "dm/uuid").startswith("CRYPT-"):
            yield f"dm-crypt on {part.name}"


def _usb_speed(disk: Path) -> int | None:
    """Return the Mbit/s that the disk's USB device has agreed with its port; None: not on USB."""
    for folder in disk.parents:
        if (folder / "busnum").exists() and (speed := _text(folder / "speed")).isdecimal():
            return int(speed)
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
