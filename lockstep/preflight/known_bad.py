"""Kernels and drivers that are known to be wrong on a Spark.

The lists are data: `catalogue/kernels.yaml` and `catalogue/drivers.yaml`, each entry with its
source.
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

# Name in an entry for the sign in /proc/meminfo of a fault that the release does not show.
CMA_SIGN = "CmaFree more than CmaTotal"
MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class KnownBad:
    """An entry of a list.

    Attributes:
        fault: The fault, in a sentence.
        remedy: What to do.
        source: Source of the report.
        date: ISO date of the reading.
        release: Start of the version, "" where only the sign tells.
        unlike: Start of all other versions, "" for an entry about some versions. The entry counts
            only where no other one does.
        sign: Text that shows the fault by itself, "" for none; for a driver, a part of nvidia-smi's
            output instead of an answer.
    """

    fault: Text
    remedy: Text
    source: Text
    date: Date
    release: str = ""
    unlike: str = ""
    sign: str = ""

    def names(self, version: str) -> bool:
        """Tell whether the entry is about a version."""
        return bool(self.release) and version.startswith(self.release)

    def is_unlike(self, version: str) -> bool:
        """Tell whether a version is unlike those that the entry calls usual."""
        return bool(self.unlike) and not version.startswith(self.unlike)


@dataclass(frozen=True, kw_only=True)
class BadKernel(KnownBad):
    """A kernel with a known fault.

    Attributes:
        cure: The word of its command line that makes the fault go away, "" for none.
        breaks: Things that do not work with it, "" where nothing is known to be certain.
    """

    sign: Literal["", "CmaFree more than CmaTotal"] = ""
    cure: str = ""
    breaks: Literal["", "rdma"] = ""


Entry = TypeVar("Entry", bound=KnownBad)


def load(path: Path, entry: type[Entry]) -> tuple[Entry, ...]:
    """Read a list of entries of one class.

    Raises:
        CatalogueError: unreadable, a missing or unknown key, or a wrong value.
    """
    entries = []
    for name, raw in read_mapping(path, CatalogueError).items():
        entry_built = schema.build(entry, raw, where=str(path), key=name, error=CatalogueError)
        if not entry_built.release and not entry_built.sign and not entry_built.unlike:
            raise CatalogueError(f"{name} has neither release nor sign", where=str(path))
        entries.append(entry_built)
    return tuple(entries)


def kernel(host: str, facts: Mapping[str, Any], *, rdma: bool) -> Iterator[Finding]:
    """Yield findings against the kernel that a host runs.

    Args:
        facts: {"release": `uname -r`, "command_line": /proc/cmdline, "cma": {"CmaTotal": bytes,
            "CmaFree": bytes}, which is {} where the kernel has no such memory}.
        rdma: Whether the inventory puts the host into a cluster with RDMA.
    """
    cma, words = facts["cma"], facts["command_line"].split()
    shows = cma.get("CmaFree", 0) > cma.get("CmaTotal", 0)
    for entry in load(FOLDER / "kernels.yaml", BadKernel):
        has_sign = shows and entry.sign == CMA_SIGN
        if not has_sign and (not entry.names(facts["release"]) or entry.cure in words):
            continue
        message = f"kernel {facts['release']}: {entry.fault}"
        if has_sign:
            free, total = cma["CmaFree"] / MIB, cma["CmaTotal"] / MIB
            message += f"; its sign is there: CmaFree {free:.0f} MiB of CmaTotal {total:.0f} MiB"
        is_refused = rdma and entry.breaks == "rdma"
        yield Finding("kernel", "error" if is_refused else "warning", host, message, entry.remedy)


def driver(host: str, gpu: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings against the driver that a host runs: an error where it does not answer.

    `gpu` is the answer of nvidia-smi, or {"fault": its output instead}.
    """
    bad = load(FOLDER / "drivers.yaml", KnownBad)
    fault = gpu.get("fault")
    if fault is not None:
        fitting_entries = [entry for entry in bad if entry.sign and entry.sign in fault]
        messages = (
            f"the driver does not answer: {fault}",
            *(entry.fault for entry in fitting_entries),
        )
        remedy = "Reboot; if it stays, update from the DGX Dashboard (`lockstep help operating`)."
        remedy = fitting_entries[0].remedy if fitting_entries else remedy
        yield Finding("driver", "error", host, "; ".join(messages), remedy)
        return
    version = gpu.get("driver_version")
    if version is None:
        message = "the driver's version is not in the answer of nvidia-smi"
        yield Finding("driver-version", "warning", host, message, "Compare `nvidia-smi` there.")
        return
    bad_drivers = [entry for entry in bad if entry.names(version)]
    for entry in bad_drivers or [entry for entry in bad if entry.is_unlike(version)]:
        message = f"driver {version}: {entry.fault}"
        yield Finding("driver-version", "warning", host, message, entry.remedy)
