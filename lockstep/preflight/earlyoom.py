"""Preflight: an earlyoom that counts its percentages otherwise than our settings mean them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan

# Commit 459d762 of earlyoom: from here on percent of MemAvailable + AnonPages, before of MemTotal.
OTHER_COUNT = (1, 8)


def findings(plan: HostPlan, version: str) -> Iterator[Finding]:
    """A warning where the host's earlyoom ends an engine much later than `earlyoom.j2` says.

    Args:
        plan: The host.
        version: Debian version of the one that it has or would install; "" where it knows none.
    """
    found = re.match(r"(?:\d+:)?(\d+)\.(\d+)", version)
    late = found is not None and (int(found[1]), int(found[2])) >= OTHER_COUNT
    if late and "earlyoom" in plan.settings.packages:
        yield Finding(
            "earlyoom-late",
            "warning",
            plan.name,
            f"earlyoom {version} counts percent of what is available and anonymous; memory on the "
            "GPU is neither, so with 100 GiB there 3 % are about 0.6 GiB and not 4 GiB",
            "Ubuntu 24.04 (DGX OS 7) has 1.7, which counts of all memory. With a later system the "
            "engine's own limits matter more (docs/fit.md).",
        )
