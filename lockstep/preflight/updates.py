"""Preflight: updates of the system that run now, or that come with the next boot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan
from lockstep.onhost.facts.preflight import ONCE

_WAIVE = '`"waive": ("upgrade-pending",)` in the inventory goes on all the same.'


def findings(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """What will take apt's locks, or the whole host, away from a deploy.

    Args:
        plan: The host.
        facts: {"once": {"state": as `systemctl is-enabled` says it, "running", "done"}, "daily":
            apt's services that run}.
    """
    once = facts["once"]
    if once["running"]:
        yield Finding(
            "upgrade-pending",
            "warning",
            plan.name,
            f"{ONCE} upgrades all packages now and then reboots this host",
            f"Wait until it has rebooted (`journalctl -fu {ONCE}` there), then deploy. {_WAIVE}",
        )
    elif once["state"].startswith("enabled") and not once["done"]:
        yield Finding(
            "upgrade-pending",
            "warning",
            plan.name,
            f"{ONCE} has not run yet: at the next boot it upgrades all packages and reboots again",
            f"`sudo reboot` now, wait until it has rebooted twice, then deploy. {_WAIVE}",
        )
    for unit in facts["daily"]:
        yield Finding(
            "apt-busy",
            "warning",
            plan.name,
            f"{unit} uses apt now",
            "Packages that are missing wait for it, up to 10 minutes for each command of apt "
            f"(`journalctl -fu {unit}` there).",
        )
