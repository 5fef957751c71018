"""Preflight: conditions on a host before the first change on any host. It only judges.

Each subject has a module; `ask` has the questions to the host.
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
from lockstep.preflight.ask import CHECKPOINTS, ENGINE, TOOLS, addresses, questions
from lockstep.preflight.between import clones, exchanged_hosts, keys_apart, keys_elsewhere
from lockstep.preflight.containers import containers_to_adopt
from lockstep.preflight.tls import given_certificate

__all__ = [
    "CHECKPOINTS",
    "ENGINE",
    "TOOLS",
    "addresses",
    "clones",
    "containers_to_adopt",
    "exchanged_hosts",
    "findings",
    "given_certificate",
    "keys_apart",
    "keys_elsewhere",
    "questions",
]


def findings(
    plan: HostPlan, pins: Pins, facts: dict[str, Any], *, now: float | None = None
) -> list[Finding]:
    """Return all findings about one host against a deploy.

    Args:
        facts: Answer of the reader `preflight`.
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
