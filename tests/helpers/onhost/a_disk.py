"""A disk below a made-up /sys, and a model's files on it."""

import os
from pathlib import Path

from lockstep.onhost.core import layout

GIB = 2**30


class Disk:
    """The disk that a made-up host has its files on, by the kernel's real number of it."""

    def __init__(self, paths: layout.Paths, own_kib: int = 128, is_partition: bool = False) -> None:
        device = paths.root.stat().st_dev
        self.device = f"{os.major(device)}:{os.minor(device)}"
        bdi = "999:0" if is_partition else self.device
        disk = paths.root / "sys/devices/nvme0n1"
        node = disk / "nvme0n1p2" if is_partition else disk
        node.mkdir(parents=True)
        if is_partition:
            (node / "partition").write_text("2\n")
            (disk / "dev").write_text(f"{bdi}\n")
        paths.block_devices.mkdir(parents=True)
        (paths.block_devices / self.device).symlink_to(node)
        self.control = paths.disk_settings / bdi / "read_ahead_kb"
        self.control.parent.mkdir(parents=True)
        self.control.write_text(f"{own_kib}\n")
        self._stat = node / "stat"
        self.give(0.0)

    @property
    def kib(self) -> int:
        return int(self.control.read_text())

    def give(self, gib: float) -> None:
        """Have given that much since boot."""
        self._stat.write_text(f"7 0 {int(gib * GIB) // 512} 9 0 0 0 0 0 0 0\n")


def write_checkpoint(paths: layout.Paths, shards: int = 2, gib: float = 1.0) -> list[Path]:
    """Write a model of sparse files, `/models/m`, and return its shards."""
    folder = paths.root / "models/m"
    folder.mkdir(parents=True)
    files = [folder / f"{number}.safetensors" for number in range(shards)]
    for file in files:
        with file.open("wb") as shard:
            shard.truncate(int(gib * GIB))
    return files


def let_use(paths: layout.Paths, pid: int, unit: str, mapped_files=(), open_files=()) -> None:
    """Make a process of a unit map and open these files, as the kernel shows it."""
    folder = paths.proc / str(pid)
    (folder / "fd").mkdir(parents=True, exist_ok=True)
    (folder / "cgroup").write_text(f"0::/system.slice/{unit}\n")
    lines = ["7f00-7f01 rw-p 00000000 00:00 0 \n", "7f02-7f03 r-xp 0000 00:00 0 [vdso]\n"]
    for file in mapped_files:
        status = file.stat()
        major, minor = os.major(status.st_dev), os.minor(status.st_dev)
        lines.append(f"7f04-7f05 r--s 00000000 {major:02x}:{minor:02x} {status.st_ino} /in/it\n")
    (folder / "maps").write_text("".join(lines))
    for entry in (folder / "fd").iterdir():
        entry.unlink()
    for number, file in enumerate(open_files):
        (folder / "fd" / str(number)).symlink_to(file)
