"""Kernels that are known to be wrong on a Spark; the list itself is `catalogue/kernels.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.errors import CatalogueError
from lockstep.findings import Finding
from lockstep.yamlfile import place, read_mapping, refuse_unknown_keys

# What an entry may call the sign in /proc/meminfo of a fault that a release does not tell.
CMA_SIGN = "CmaFree more than CmaTotal"
RDMA = "rdma"
_NEEDED = ("release", "what", "remedy", "source", "date")
_ALLOWED = (*_NEEDED, "cure", "sign", "breaks")
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class BadKernel:
    """One entry of the list.

    Attributes:
        release: How `uname -r` begins.
        what: What is wrong with it.
        remedy: What to do.
        source: Who reported it.
        cure: Word of the kernel's command line with which the fault is not there, "" for none.
        sign: `CMA_SIGN` where it shows the fault by itself, "" for none.
        breaks: `RDMA` where that does not work with it, "" where nothing is known to be certain.
    """

    release: str
    what: str
    remedy: str
    source: str
    cure: str = ""
    sign: str = ""
    breaks: str = ""


def load(catalogue: Path) -> tuple[BadKernel, ...]:
    """Read ``kernels.yaml``.

    Raises:
        CatalogueError: unreadable, a key that is missing or not known, or a wrong value.
    """
    path = catalogue / "kernels.yaml"
    return tuple(
        _entry(name, raw, path) for name, raw in read_mapping(path, CatalogueError).items()
    )


def _entry(name: str, raw: Any, path: Path) -> BadKernel:
    if not isinstance(raw, dict):
        raise CatalogueError(f"{name} must be a mapping", where=str(path))
    refuse_unknown_keys(raw, _ALLOWED, str(path), name, CatalogueError)
    missing = [key for key in _NEEDED if not raw.get(key)]
    if missing:
        raise CatalogueError(f"{name} lacks {', '.join(missing)}", where=str(path))
    for key, allowed in (("sign", CMA_SIGN), ("breaks", RDMA)):
        if raw.get(key, allowed) != allowed:
            raise CatalogueError(
                f"{name}: {key} is not known",
                where=place(str(path), raw, key),
                found=repr(raw[key]),
                allowed=allowed,
            )
    return BadKernel(**{key: str(value) for key, value in raw.items() if key != "date"})


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
        if not signed and (not facts["release"].startswith(entry.release) or entry.cure in words):
            continue
        message = f"kernel {facts['release']}: {entry.what}"
        if signed:
            free, total = cma["CmaFree"] / MIB, cma["CmaTotal"] / MIB
            message += f"; its sign is there: CmaFree {free:.0f} MiB of CmaTotal {total:.0f} MiB"
        refused = rdma and entry.breaks == RDMA
        yield Finding("kernel", "error" if refused else "warning", host, message, entry.remedy)
