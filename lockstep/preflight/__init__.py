"""Preflight: conditions on a host before the first change on any host. Pure judgement.

One module for each subject; `ask` has what the host is asked.
"""

from __future__ import annotations

from typing import Any

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan
from lockstep.lock.pins import Pins
from lockstep.preflight import (
    containers,
    disks,
    docker,
    foreign,
    hardware,
    images,
    memory,
    network,
    system,
    tls,
)
from lockstep.preflight.ask import ENGINE, MODELS, TOOLS, addresses, questions
from lockstep.preflight.between import exchanged, keys_apart, keys_elsewhere, twins
from lockstep.preflight.containers import adopted
from lockstep.preflight.tls import brought

__all__ = [
    "ENGINE",
    "MODELS",
    "TOOLS",
    "addresses",
    "adopted",
    "brought",
    "exchanged",
    "findings",
    "keys_apart",
    "keys_elsewhere",
    "questions",
    "twins",
]


def findings(
    plan: HostPlan, pins: Pins, facts: dict[str, Any], *, now: float | None = None
) -> list[Finding]:
    """Everything about one host that speaks against a deploy.

    Args:
        facts: What the reader `preflight` answered.
        now: This machine's clock, seconds since 1970; None reads it.
    """
    return [
        *hardware.findings(plan, facts),
        *system.updates(plan, facts["updates"]),
        *system.unfinished_packages(plan, facts["unfinished"]),
        *system.earlyoom(plan, facts["earlyoom"]),
        *memory.findings(plan, pins, facts),
        *system.clock(plan, facts["time"], now=now),
        *docker.findings(plan, facts),
        *containers.findings(plan, facts["docker"]),
        *images.findings(plan, pins, facts),
        *network.findings(plan, facts),
        *disks.findings(plan, pins, facts),
        *disks.backups(plan, facts),
        *tls.findings(plan, facts["tls"]),
        *system.accounts(plan, facts["unknown_accounts"]),
        *system.sysctls(plan, facts["unknown_sysctls"]),
        *foreign.findings(plan, facts["foreign"]),
    ]
