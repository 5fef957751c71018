"""Preflight: the CUDA that an image was made with, against the CUDA that the driver takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan, images_of
from lockstep.lock.pins import Pins


def findings(plan: HostPlan, pins: Pins, facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield images whose CUDA is newer than the driver's.

    They are warnings: kernels that were compiled for SM 12.1 run all the same, and an image's
    libraries for forward compatibility can make the others run (13.2 did so on a Spark with driver
    580.142; on another one with 580.159.03 they were not available: facts of the field, 2026-11).
    """
    takes = facts["gpu"].get("cuda", "")
    for name in images_of(plan):
        image_cuda = pins.images[name].cuda
        if takes and image_cuda and _minor(image_cuda) > _minor(takes):
            message = (
                f"image {name} was made with CUDA {image_cuda}, and driver "
                f"{facts['gpu'].get('driver_version', '')} takes {takes}: what it leaves for the "
                "driver to compile (PTX) may end with cudaErrorUnsupportedPtxVersion while CUDA "
                "graphs are captured"
            )
            remedy = (
                "Name an image that was made with an older CUDA, or update the driver from the DGX "
                "Dashboard."
            )
            yield Finding("image-cuda-newer", "warning", plan.name, message, remedy)


def _minor(release: str) -> tuple[int, ...]:
    """Return (13, 4) of "13.4.1"."""
    return tuple(map(int, release.split(".")[:2]))
