"""Preflight: accounts, the clock, earlyoom, and updates that run now or come with the next boot."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan
from lockstep.onhost.core.event_lines import duration
from lockstep.onhost.facts.preflight import ONCE
from lockstep.onhost.records import package_changes
from lockstep.onhost.system.apt_lock_wait import LIMIT_S

# Commit 459d762 of earlyoom: from here on percent of MemAvailable + AnonPages, before of MemTotal.
_OTHER_COUNT = (1, 8)
_WAIVE = '`"waive": ("upgrade-pending",)` in the inventory goes on all the same.'


def accounts(plan: HostPlan, unknown: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for each account that the host does not have."""
    for name in unknown:
        message = f"there is no account {name}, which `operators` or `docker_users` names"
        remedy = f"Create it there (`adduser {name}`), or correct the inventory."
        yield Finding("no-account", "error", plan.name, message, remedy)


def sysctls(plan: HostPlan, unknown: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each setting that the host's kernel lacks: name → the nearest name."""
    for name, near in unknown.items():
        message = f"its kernel has no setting {name}, which `sysctls` names"
        suggestion = f"Did you mean {near}? " if near else ""
        remedy = (
            f"{suggestion}Correct `sysctls` of the inventory or of group data, or load the "
            "module that "
            "brings it."
        )
        yield Finding("no-sysctl", "error", plan.name, message, remedy)


def clock(plan: HostPlan, host_time: float, *, now: float | None = None) -> Iterator[Finding]:
    """Yield a finding for a clock too far from this machine's; both in seconds since 1970."""
    skew = abs(host_time - (time.time() if now is None else now))
    if skew > plan.settings.expected.clock_skew_s:
        message = f"its clock differs by {skew:.0f} s from this one"
        remedy = "Run `timedatectl set-ntp true` there: TLS and package signatures need it."
        yield Finding("clock", "error", plan.name, message, remedy)


def earlyoom(plan: HostPlan, version: str) -> Iterator[Finding]:
    """Yield a warning where the host's earlyoom ends an engine much later than `earlyoom.j2` says.

    `version` is Debian's, of the earlyoom that the host has or would install; "" if unknown.
    """
    match = re.match(r"(?:\d+:)?(\d+)\.(\d+)", version)
    late = match is not None and (int(match[1]), int(match[2])) >= _OTHER_COUNT
    if late and "earlyoom" in plan.settings.packages:
        message = (
            f"earlyoom {version} counts percent of what is available and anonymous; memory on the "
            "GPU is neither, so with 100 GiB there 3 % are about 0.6 GiB and not 4 GiB"
        )
        remedy = (
            "Ubuntu 24.04 (DGX OS 7) has 1.7, which counts of all memory. With a later system the "
            "engine's own limits matter more (`lockstep help fit`)."
        )
        yield Finding("earlyoom-late", "warning", plan.name, message, remedy)


def updates(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield updates that will take apt's locks, or the whole host, away from a deploy.

    `facts` are {"once": {"state": as `systemctl is-enabled` says it, "running", "done"}, "daily":
    apt's services that run, "holder": null or {"who": has a lock of apt, "unit", "remedy"}}.
    """
    once = facts["once"]
    if once["running"]:
        message = f"{ONCE} upgrades all packages now and then reboots this host"
        remedy = f"Wait until it has rebooted (`journalctl -fu {ONCE}` there), then deploy."
        yield Finding("upgrade-pending", "warning", plan.name, message, f"{remedy} {_WAIVE}")
    elif once["state"].startswith("enabled") and not once["done"]:
        message = (
            f"{ONCE} has not run yet: at the next boot it upgrades all packages and reboots again"
        )
        remedy = f"`sudo reboot` now, wait until it has rebooted twice, then deploy. {_WAIVE}"
        yield Finding("upgrade-pending", "warning", plan.name, message, remedy)
    holder = facts["holder"]
    busy = {
        f"{unit} uses apt now": f"`journalctl -fu {unit}` shows what it does"
        for unit in facts["daily"]
        if not holder or holder["unit"] != unit
    }
    if holder:
        busy[holder["who"]] = holder["remedy"]
    waits = f"Packages that are missing wait up to {duration(LIMIT_S)} for each command of apt"
    for message, remedy in busy.items():
        yield Finding("apt-busy", "warning", plan.name, message, f"{waits}; {remedy}.")


def unfinished_packages(plan: HostPlan, half_installed: Mapping[str, str]) -> Iterator[Finding]:
    """Yield an error where foreign packages block apt: name → state, and what it waits for."""
    if half_installed:
        message = (
            "packages are missing, and apt can install none while others are half installed: "
            f"{package_changes.states_text(half_installed)}"
        )
        yield Finding("apt-broken", "error", plan.name, message, package_changes.CURE)
