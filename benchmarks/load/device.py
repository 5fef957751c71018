"""A block device with a rate, a latency and a queue depth, and a read-only file system on it.

`disk.c` answers reads of an image in memory at that pace; a loop device with direct I/O makes a
block device of it. A file system is mounted anew for each load, so that nothing of it is cached.
Only in a mount namespace of its own: what is left over ends with that.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SOURCE = Path(__file__).with_name("disk.c")
KERNEL_READ_AHEAD_KB = 128
_PAGE = 4096
_CACHESTAT = 451
# linux/loop.h: read-only, cleared with its last user, direct I/O.
_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE, _LOOP_FLAGS = 0x4C82, 0x4C0A, 1 | 4 | 16


@dataclass(frozen=True)
class Disk:
    """The figures of a disk.

    Attributes:
        rate: Bytes per second.
        latency: Seconds from a request's last byte to its answer.
        depth: Requests in work at once.
        request_kb: The largest request, in KiB (`max_sectors_kb`).
    """

    rate: float
    latency: float
    depth: int
    request_kb: int


#: `usb` is article 003's SSD, with the 512 KiB of the kernel's SCSI disks; `nvme` is a Spark's (5
#: to 6 GB/s), with 0.1 ms; `network` is 10 GbE with 1 ms and the 1 MiB of an NFS mount.
DISKS = {
    "usb": Disk(475e6, 0.6e-3, 32, 512),
    "nvme": Disk(5.6e9, 0.1e-3, 128, 512),
    "network": Disk(1.1e9, 1e-3, 64, 1024),
}


def build_program(path: Path) -> Path:
    """Compile `disk.c` as one static binary, that also runs on a machine without a compiler."""
    words = ["cc", "-O2", "-Wall", "-static", "-s", "-pthread", "-o", str(path), str(SOURCE)]
    subprocess.run(words, check=True)
    return path


def make_image(image: Path, size: int, fill: Callable[[Path], None]) -> None:
    """Make an ext4 image of so many bytes, with what ``fill`` writes into a folder."""
    with image.open("wb") as file:
        file.truncate(size)
    # Like a checkpoint on a Spark: ext4. Without a journal it mounts read-only.
    subprocess.run(
        ["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(image)], check=True
    )
    folder = image.with_suffix(".write")
    folder.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    try:
        fill(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextlib.contextmanager
def slow_disk(program: Path, image: Path, disk: Disk) -> Iterator[Path]:
    """A loop device of these figures: its name, for example `/dev/loop3`."""
    folder = image.with_suffix(".served")
    folder.mkdir(exist_ok=True)
    figures = (f"{disk.rate:.0f}", f"{disk.latency * 1e6:.0f}", str(disk.depth))
    server = subprocess.Popen([str(program), str(image), str(folder), *figures])
    try:
        _wait(lambda: (folder / "disk").exists() or server.poll() is not None)
        with _loop_device(folder / "disk") as loop:
            queue = Path("/sys/block") / loop.name / "queue"
            (queue / "max_sectors_kb").write_text(str(disk.request_kb))
            (queue / "scheduler").write_text("none")
            yield loop
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)
        server.terminate()
        server.wait()


@contextlib.contextmanager
def _loop_device(image: Path) -> Iterator[Path]:
    """A loop device on an image: read-only, asynchronous, gone with its last user."""
    with Path("/dev/loop-control").open("rb") as control, image.open("rb") as file:
        loop = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
        with loop.open("rb") as device:
            config = struct.pack("<II52xI240x", file.fileno(), 0, _LOOP_FLAGS)
            fcntl.ioctl(device, _LOOP_CONFIGURE, config)
            yield loop


@contextlib.contextmanager
def mount(loop: Path, folder: Path, read_ahead_kb: int) -> Iterator[Path]:
    """The file system, with nothing of it cached, and the device's read-ahead."""
    (Path("/sys/block") / loop.name / "queue/read_ahead_kb").write_text(str(read_ahead_kb))
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "ro,noload", str(loop), str(folder)], check=True)
    try:
        yield folder
    finally:
        # The last process of an engine ends a moment after it was killed.
        _wait(lambda: subprocess.run(["umount", str(folder)]).returncode == 0)


def plain_read(files: Sequence[Path]) -> float:
    """Read the files with `dd`, 16 MiB at a time, past the cache; return the seconds."""
    start = time.monotonic()
    for path in files:
        subprocess.run(
            ["dd", f"if={path}", "of=/dev/null", "bs=16M", "iflag=direct", "status=none"],
            check=True,
        )
    return time.monotonic() - start


def random_read(path: Path, count: int = 200) -> float:
    """Read 4 KiB at random places, one at a time, past the cache; return the median seconds."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        pages, times = os.fstat(file).st_size // _PAGE, []
        buffer = mmap.mmap(-1, _PAGE)
        for _ in range(count):
            start = time.perf_counter()
            os.preadv(file, [buffer], _PAGE * random.randrange(pages))
            times.append(time.perf_counter() - start)
    finally:
        os.close(file)
    return median(times)


def mapped_read(path: Path, limit: int = 128 * 2**20) -> float:
    """Map a file and touch its pages in order, as engines do; return bytes per second."""
    size = min(limit, path.stat().st_size)
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as pages:
        start = time.perf_counter()
        for place in range(0, size, _PAGE):
            pages[place]
        return size / (time.perf_counter() - start)


def cached_bytes(path: Path) -> int:
    """Count the bytes of a file that are in the page cache (Linux 6.5)."""
    libc = ctypes.CDLL(None, use_errno=True)
    whole, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    file = os.open(path, os.O_RDONLY)
    try:
        if libc.syscall(_CACHESTAT, file, ctypes.byref(whole), ctypes.byref(found), 0):
            raise OSError(ctypes.get_errno(), f"{path}: cachestat")
    finally:
        os.close(file)
    return found[0] * _PAGE


def need(*programs: str) -> None:
    """End with the programs of this list that are absent."""
    if absent := [name for name in programs if not shutil.which(name)]:
        raise SystemExit(f"load: {', '.join(absent)} not found; install it first")


def _wait(is_ready: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not is_ready():
        if time.monotonic() > end:
            raise SystemExit("load: the disk did not answer, or stayed in use, for 10 s")
        time.sleep(0.01)
