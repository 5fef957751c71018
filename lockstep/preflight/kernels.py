"""Kernels that are known to be wrong on a Spark; the list itself is `catalogue/kernels.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lockstep.core.findings import Finding
from lockstep.preflight import known_bad
from lockstep.preflight.known_bad import KnownBad

# What an entry may call the sign in /proc/meminfo of a fault that a release does not tell.
CMA_SIGN = "CmaFree more than CmaTotal"
MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class BadKernel(KnownBad):
    """One kernel.

    Attributes:
        cure: The word of its command line that makes the fault go away, "" for none.
        breaks: What does not work with it, "" where nothing is known to be certain.
    """

    sign: Literal["", "CmaFree more than CmaTotal"] = ""
    cure: str = ""
    breaks: Literal["", "rdma"] = ""


def load(catalogue: Path) -> tuple[BadKernel, ...]:
    """Read ``kernels.yaml``.

    Raises:
        CatalogueError: as `known_bad.load` says.
    """
    return known_bad.load(catalogue / "kernels.yaml", BadKernel)


def findings(
    host: str, facts: Mapping[str, Any], bad: Sequence[BadKernel], *, rdma: bool
) -> Iterator[Finding]:
    """What speaks against the kernel that a host runs.

    Args:
        host: Its name.
        facts: {"release": `uname -r`, "command_line": /proc/cmdline, "cma": {"CmaTotal": bytes,
            "CmaFree": bytes}, which is {} where the kernel has no such memory}.
        bad: The list.
        rdma: Whether the inventory puts the host into a cluster with RDMA.
    """
    cma, words = facts["cma"], facts["command_line"].split()
    shows = cma.get("CmaFree", 0) > cma.get("CmaTotal", 0)
    for entry in bad:
        signed = shows and entry.sign == CMA_SIGN
        if not signed and (not entry.names(facts["release"]) or entry.cure in words):
            continue
        message = f"kernel {facts['release']}: {entry.what}"
        if signed:
            free, total = cma["CmaFree"] / MIB, cma["CmaTotal"] / MIB
            message += f"; its sign is there: CmaFree {free:.0f} MiB of CmaTotal {total:.0f} MiB"
        refused = rdma and entry.breaks == "rdma"
        yield Finding("kernel", "error" if refused else "warning", host, message, entry.remedy)
