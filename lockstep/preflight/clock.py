"""Preflight: the host's clock."""

from __future__ import annotations

import time
from collections.abc import Iterator

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan


def findings(plan: HostPlan, theirs: float, *, now: float | None = None) -> Iterator[Finding]:
    """A clock too far from this machine's; both in seconds since 1970."""
    skew = abs(theirs - (time.time() if now is None else now))
    if skew > plan.settings.expected.clock_skew_s:
        yield Finding(
            "clock",
            "error",
            plan.name,
            f"its clock differs by {skew:.0f} s from this one",
            "Run `timedatectl set-ntp true` there: TLS and package signatures need it.",
        )
