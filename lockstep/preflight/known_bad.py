"""Kernels and drivers that are known to be wrong on a Spark.

The lists are data and no code: `catalogue/kernels.yaml` and `catalogue/drivers.yaml`, each entry
with its source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from lockstep.core.errors import CatalogueError
from lockstep.core.figures import Date, Text
from lockstep.core.findings import Finding
from lockstep.core.yamlfile import read_mapping
from lockstep.fit.catalogue import FOLDER
from lockstep.onhost.core import schema

# What an entry may call the sign in /proc/meminfo of a fault that a release does not tell.
CMA_SIGN = "CmaFree more than CmaTotal"
MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class KnownBad:
    """One entry of a list.

    Attributes:
        what: What is wrong with it.
        remedy: What to do.
        source: Who reported it.
        date: ISO date of the reading.
        release: How the version begins, "" where only the sign tells.
        unlike: How every other version begins, "" for an entry about some; of these it speaks where
            no other entry does.
        sign: What shows the fault by itself, "" for nothing; of a driver, a part of what nvidia-smi
            says instead of an answer.
    """

    what: Text
    remedy: Text
    source: Text
    date: Date
    release: str = ""
    unlike: str = ""
    sign: str = ""

    def names(self, version: str) -> bool:
        """Whether a version is one of those that the entry is about."""
        return bool(self.release) and version.startswith(self.release)

    def is_unlike(self, version: str) -> bool:
        """Whether a version is not one of those that the entry thinks usual."""
        return bool(self.unlike) and not version.startswith(self.unlike)


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


Entry = TypeVar("Entry", bound=KnownBad)


def load(path: Path, entry: type[Entry]) -> tuple[Entry, ...]:
    """Read one list, of entries of one class.

    Raises:
        CatalogueError: unreadable, a key that is missing or not known, or a wrong value.
    """
    found = []
    for name, raw in read_mapping(path, CatalogueError).items():
        one = schema.build(entry, raw, where=str(path), key=name, error=CatalogueError)
        if not one.release and not one.sign and not one.unlike:
            raise CatalogueError(f"{name} has neither release nor sign", where=str(path))
        found.append(one)
    return tuple(found)


def kernel(host: str, facts: Mapping[str, Any], *, rdma: bool) -> Iterator[Finding]:
    """What speaks against the kernel that a host runs.

    Args:
        facts: {"release": `uname -r`, "command_line": /proc/cmdline, "cma": {"CmaTotal": bytes,
            "CmaFree": bytes}, which is {} where the kernel has no such memory}.
        rdma: Whether the inventory puts the host into a cluster with RDMA.
    """
    cma, words = facts["cma"], facts["command_line"].split()
    shows = cma.get("CmaFree", 0) > cma.get("CmaTotal", 0)
    for entry in load(FOLDER / "kernels.yaml", BadKernel):
        signed = shows and entry.sign == CMA_SIGN
        if not signed and (not entry.names(facts["release"]) or entry.cure in words):
            continue
        message = f"kernel {facts['release']}: {entry.what}"
        if signed:
            free, total = cma["CmaFree"] / MIB, cma["CmaTotal"] / MIB
            message += f"; its sign is there: CmaFree {free:.0f} MiB of CmaTotal {total:.0f} MiB"
        refused = rdma and entry.breaks == "rdma"
        yield Finding("kernel", "error" if refused else "warning", host, message, entry.remedy)


def driver(host: str, gpu: Mapping[str, str]) -> Iterator[Finding]:
    """What speaks against the driver that a host runs: an error where it does not answer.

    `gpu` is what nvidia-smi answers, or {"fault": what it says instead}.
    """
    bad = load(FOLDER / "drivers.yaml", KnownBad)
    fault = gpu.get("fault")
    if fault is not None:
        known = [entry for entry in bad if entry.sign and entry.sign in fault]
        said = (f"the driver does not answer: {fault}", *(each.what for each in known))
        remedy = "Reboot; if it stays, update from the DGX Dashboard (`lockstep help operating`)."
        remedy = known[0].remedy if known else remedy
        yield Finding("driver", "error", host, "; ".join(said), remedy)
        return
    version = gpu["driver_version"]
    found = [entry for entry in bad if entry.names(version)]
    for entry in found or [entry for entry in bad if entry.is_unlike(version)]:
        message = f"driver {version}: {entry.what}"
        yield Finding("driver-version", "warning", host, message, entry.remedy)
