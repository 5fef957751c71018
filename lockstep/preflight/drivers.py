"""Drivers that are known to be wrong on a Spark; the list itself is `catalogue/drivers.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lockstep.core.findings import Finding
from lockstep.preflight import known_bad
from lockstep.preflight.known_bad import KnownBad


def load(catalogue: Path) -> tuple[KnownBad, ...]:
    """Read ``drivers.yaml``; `sign` is a part of what nvidia-smi says instead of an answer.

    Raises:
        CatalogueError: as `known_bad.load` says.
    """
    return known_bad.load(catalogue / "drivers.yaml", KnownBad)


def findings(host: str, gpu: Mapping[str, str], bad: Sequence[KnownBad]) -> Iterator[Finding]:
    """What speaks against the driver that a host runs: an error where it does not answer.

    Args:
        host: Its name.
        gpu: What nvidia-smi answers, or {"fault": what it says instead}.
        bad: The list.
    """
    fault = gpu.get("fault")
    if fault is not None:
        known = [entry for entry in bad if entry.sign and entry.sign in fault]
        yield Finding(
            "driver",
            "error",
            host,
            "; ".join((f"the driver does not answer: {fault}", *(each.what for each in known))),
            known[0].remedy
            if known
            else "Reboot; if it stays, update from the DGX Dashboard (docs/operating.md).",
        )
        return
    version = gpu["driver_version"]
    for entry in bad:
        if entry.names(version):
            message = f"driver {version}: {entry.what}"
            yield Finding("driver-version", "warning", host, message, entry.remedy)
