"""Preflight: an earlyoom that counts its percentages otherwise than our settings mean them."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep import debian_version
from lockstep.findings import Finding
from lockstep.inventory_host import HostPlan
from lockstep.pins import Pins

# Commit 459d762 of earlyoom: from here on percent of MemAvailable + AnonPages, before of MemTotal.
OTHER_COUNT = "1.8"


def findings(plan: HostPlan, pins: Pins) -> Iterator[Finding]:
    """A warning where the locked earlyoom ends an engine much later than `earlyoom.j2` says.

    Args:
        plan: The host.
        pins: What will be installed.
    """
    settings = plan.settings
    pin = pins.apt.get(settings.expected.architecture)
    versions = {item.name: item.version for item in pin.packages} if pin else {}
    version = versions.get("earlyoom", "0")
    wanted = "earlyoom" in settings.packages
    if wanted and debian_version.compare(version, OTHER_COUNT) >= 0:
        yield Finding(
            "earlyoom-late",
            "warning",
            plan.name,
            f"earlyoom {version} counts percent of what is available and anonymous; memory on the "
            "GPU is neither, so with 100 GiB there 3 % are about 0.6 GiB and not 4 GiB",
            "Ubuntu 24.04 (DGX OS 7) has 1.7, which counts of all memory. With a later system the "
            "engine's own limits matter more (docs/fit.md).",
        )
