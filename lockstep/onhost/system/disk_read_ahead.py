"""The read-ahead of the disks with a model's weights, raised while its engine loads.

Engines map their weights, and a page fault waits for one read of this size. With the kernel's 128
KiB a disk is idle most of the time. A file gets the value that its disk has when it is opened, so
the start gate raises it before the engine runs. The disk's own value returns when the engine is
ready, or when its unit ends for whatever reason; after a power cut the kernel begins with its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic_files, errors, layout

#: KiB of one read while an engine loads. A load then takes 0.87 to 1.34 of a plain read's time on
#: disks like USB, NVMe and a network's, and 32 MiB add nothing (docs/evidence/load.md, 2026-11-29).
RAISED_KIB = 16 * 1024


def raise_read_ahead(
    model: str, devices: Iterable[int], paths: layout.Paths, tell: Callable[[str], None]
) -> None:
    """Raise the read-ahead of these devices (`st_dev`), and record their own values before.

    A higher value of the owner stays. A disk that refuses is no error: `tell` says it.
    """
    # What a start before has left counts for no disk's own value.
    put_back(paths, tell)
    own_kib: dict[str, int] = {}
    for device in devices:
        bdi = _bdi(device, paths)
        if bdi is None:
            name = disk_name(device, paths)
            tell(f"reads stay small while it loads: the kernel has no read-ahead for device {name}")
            continue
        try:
            value = int(_read_ahead_file(bdi, paths).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if value < RAISED_KIB:
            own_kib[bdi] = value
    if not own_kib:
        return
    try:
        # Before the change: whatever ends this program, the values return.
        record = {"model": model, "raised_kib": RAISED_KIB, "own_kib": own_kib}
        atomic_files.write_json(paths.read_ahead, record)
        set_recorded_disks(True, paths)
    except OSError as error:
        tell(f"reads stay small while it loads: {error.filename}: {errors.why(error)}")
        put_back(paths, tell)


def set_recorded_disks(is_raised: bool, paths: layout.Paths) -> None:
    """Set the recorded disks to the raised value, or to their own; raise OSError on failure."""
    record = _load_record(paths)
    for bdi, own_kib in record["own_kib"].items():
        value, former_value = own_kib, record["raised_kib"]
        if is_raised:
            value, former_value = former_value, value
        control = _read_ahead_file(bdi, paths)
        # A disk may be gone, and a value that somebody has set since is not ours to change.
        if control.exists() and control.read_text(encoding="ascii").strip() == str(former_value):
            control.write_text(f"{value}\n", encoding="ascii")


def put_back(
    paths: layout.Paths, tell: Callable[[str], None], only_model: str | None = None
) -> None:
    """Give the recorded disks their own values, and remove the record.

    With `only_model` nothing is done for another model's record.
    """
    if only_model not in (None, _load_record(paths)["model"]):
        return
    try:
        set_recorded_disks(False, paths)
        paths.read_ahead.unlink(missing_ok=True)
    except OSError as error:
        tell(f"read-ahead not put back: {error.filename}: {errors.why(error)}")


def read_ahead_kib(device: int, paths: layout.Paths) -> int:
    """Return the read-ahead of a device (`st_dev`) now, in KiB; 0 if it is not known."""
    bdi = _bdi(device, paths)
    try:
        return int(_read_ahead_file(bdi, paths).read_text(encoding="ascii")) if bdi else 0
    except (OSError, ValueError):
        return 0


def disk_name(device: int, paths: layout.Paths) -> str:
    """Return the kernel's name of a device (`nvme0n1p2`), or its numbers where it is no disk."""
    node = _block_device_folder(device, paths)
    return node.resolve().name if node.exists() else node.name


def read_bytes(device: int, paths: layout.Paths) -> int | None:
    """Return the bytes read from a device since boot; None if it is no block device."""
    try:
        fields = (_block_device_folder(device, paths) / "stat").read_text(encoding="ascii").split()
        # Sectors of 512 bytes (Documentation/block/stat.rst).
        return int(fields[2]) * 512
    except (OSError, ValueError, IndexError):
        return None


def _load_record(paths: layout.Paths) -> Mapping[str, Any]:
    record = atomic_files.read_json(paths.read_ahead)
    empty: dict[str, Any] = {"model": None, "raised_kib": RAISED_KIB, "own_kib": {}}
    return {**empty, **record} if isinstance(record, dict) else empty


def _bdi(device: int, paths: layout.Paths) -> str | None:
    """Return the name of the device's settings; a partition has those of its disk.

    A network file system has its own, by `st_dev`. None for one that cannot be told by it (btrfs).
    """
    node = _block_device_folder(device, paths)
    try:
        if (node / "partition").exists():
            return (node.resolve().parent / "dev").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return node.name if _read_ahead_file(node.name, paths).exists() else None


def _block_device_folder(device: int, paths: layout.Paths) -> Path:
    return paths.block_devices / f"{os.major(device)}:{os.minor(device)}"


def _read_ahead_file(bdi: str, paths: layout.Paths) -> Path:
    return paths.disk_settings / bdi / "read_ahead_kb"
