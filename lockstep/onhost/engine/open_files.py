"""Files that processes have open or mapped, by device and inode: in a container paths differ."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

#: (`st_dev`, `st_ino`) of a file.
Inode = tuple[int, int]


def inode_of(path: Path) -> Inode:
    """Return the device and inode of a file; raise OSError if it is not there."""
    status = path.stat()
    return status.st_dev, status.st_ino


def open_and_mapped(
    processes: Iterable[int], inodes: Collection[Inode], proc: Path
) -> tuple[set[Inode], set[Inode]]:
    """Return which of these files the processes have open, and which they have mapped.

    Processes that end meanwhile have none.
    """
    open_files: set[Inode] = set()
    mapped_files: set[Inode] = set()
    for pid in processes:
        folder = proc / str(pid)
        with suppress(OSError):
            mapped_files.update(_inodes_in_maps(folder / "maps"))
        with suppress(OSError):
            for entry in (folder / "fd").iterdir():
                with suppress(OSError):
                    open_files.add(inode_of(entry))
    return open_files & set(inodes), mapped_files & set(inodes)


def _inodes_in_maps(maps: Path) -> set[Inode]:
    # ADDRESS PERMISSIONS OFFSET MAJOR:MINOR INODE PATH (proc_pid_maps(5)).
    mapped_inodes = set()
    with maps.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            _, _, _, device, inode, *_ = line.split(maxsplit=5)
            if inode != "0":
                major, minor = (int(number, 16) for number in device.split(":"))
                mapped_inodes.add((os.makedev(major, minor), int(inode)))
    return mapped_inodes
