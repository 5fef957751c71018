"""Preflight: accounts that the inventory names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan


def findings(plan: HostPlan, unknown: Sequence[str]) -> Iterator[Finding]:
    """One finding for each account that the host does not have."""
    for name in unknown:
        yield Finding(
            "no-account",
            "error",
            plan.name,
            f"there is no account {name}, which `operators` or `docker_users` names",
            f"Create it there (`adduser {name}`), or correct the inventory.",
        )
