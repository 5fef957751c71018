"""The unified memory of this host, as the kernel counts it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lockstep.onhost.core import errors

GIB = 1024**3


@dataclass(frozen=True)
class Memory:
    """Unified memory of this host in GiB, from /proc/meminfo.

    `available` (MemAvailable) is what an engine can get. `free` (MemFree) leaves out the page
    cache and is what vLLM before 0.20.2 looks at on an integrated GPU (facts of 2026-11).
    """

    total: float
    available: float
    free: float


def memory(proc: Path = Path("/proc")) -> Memory:
    """Read /proc/meminfo. Problem when a field is missing."""
    fields = {}
    for line in (proc / "meminfo").read_text(encoding="ascii").splitlines():
        key, _, rest = line.partition(":")
        fields[key] = rest.split()
    try:
        kib = [int(fields[key][0]) for key in ("MemTotal", "MemAvailable", "MemFree")]
    except (KeyError, IndexError, ValueError) as error:
        raise errors.Problem(f"{proc}/meminfo: cannot read {error}") from error
    return Memory(*(value * 1024 / GIB for value in kib))
