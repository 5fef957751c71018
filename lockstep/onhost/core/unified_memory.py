"""The unified memory of this host, as the kernel counts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lockstep.onhost.core import errors

GIB = 1024**3


@dataclass(frozen=True)
class Memory:
    """Unified memory of this host in GiB, from /proc/meminfo.

    `available` (MemAvailable) is the memory that an engine can get. `free` (MemFree) leaves out the
    page cache; vLLM before 0.20.2 reads it on an integrated GPU (facts of 2026-11).
    """

    total: float
    available: float
    free: float


def memory(proc: Path = Path("/proc")) -> Memory:
    """Read /proc/meminfo; raise Problem if a field is missing."""
    lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
    try:
        fields = dict(line.split(":", 1) for line in lines)
        kib = [int(fields[key].split()[0]) for key in ("MemTotal", "MemAvailable", "MemFree")]
    except (KeyError, IndexError, ValueError) as error:
        raise errors.Problem(f"{proc}/meminfo: cannot read {error}") from error
    return Memory(*(value * 1024 / GIB for value in kib))


def drop_and_compact_cache(proc: Path, tell: Callable[[str], None]) -> None:
    """Make the kernel drop the page cache and join free pages to large blocks; needs root.

    The driver takes blocks of 2 MiB, and finds none if a full cache has left only single pages
    (`NV_ERR_NO_MEMORY`, NVIDIA/open-gpu-kernel-modules#1358). A failure is no error: `tell` says
    it.
    """
    for name, value in (("drop_caches", "3\n"), ("compact_memory", "1\n")):
        try:
            (proc / "sys/vm" / name).write_text(value, encoding="ascii")
        except OSError as error:
            tell(f"{name} not written: {errors.why(error)}")
