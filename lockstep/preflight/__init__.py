"""Preflight: conditions on a host before the first change on any host. Pure judgement.

One module for each subject; `ask` has what the host is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.core.findings import Finding
from lockstep.host.shared_keys import SharedKey
from lockstep.inventory.host import HostPlan
from lockstep.lock.pins import Pins
from lockstep.preflight import (
    containers,
    disks,
    docker,
    foreign,
    hardware,
    identity,
    keys,
    memory,
    network,
    system,
    tls,
)
from lockstep.preflight.ask import ENGINE, MODELS, TOOLS, addresses, questions
from lockstep.preflight.containers import adopted
from lockstep.preflight.tls import brought

__all__ = [
    "ENGINE",
    "MODELS",
    "TOOLS",
    "addresses",
    "adopted",
    "between",
    "brought",
    "findings",
    "keys_elsewhere",
    "questions",
]


def findings(
    plan: HostPlan, pins: Pins, facts: dict[str, Any], *, now: float | None = None
) -> list[Finding]:
    """Everything about one host that speaks against a deploy.

    Args:
        plan: The host.
        pins: What will be fetched, with sizes in bytes.
        facts: What the reader answered.
        now: This machine's clock, seconds since 1970; None reads it.
    """
    return [
        *hardware.findings(plan, facts),
        *system.updates(plan, facts["updates"]),
        *system.earlyoom(plan, facts["earlyoom"]),
        *memory.findings(plan, pins, facts),
        *system.clock(plan, facts["time"], now=now),
        *docker.findings(plan, facts),
        *containers.findings(plan, facts["docker"]),
        *network.findings(plan, facts),
        *disks.findings(plan, pins, facts),
        *tls.findings(plan, facts["tls"]),
        *system.accounts(plan, facts["unknown_accounts"]),
        *foreign.findings(plan, facts["foreign"]),
    ]


def between(facts: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """What the hosts of one run say of each other, which no inventory can waive.

    Args:
        facts: Host → what its reader answered.
    """
    return list(identity.findings(facts))


def keys_elsewhere(
    shared: Mapping[str, Sequence[SharedKey]], files: Mapping[str, Mapping[str, Any]]
) -> list[Finding]:
    """What the hosts of one run lack of the keys that they have in common.

    Args:
        shared: Host → those keys.
        files: Host → what its reader `files` answered.
    """
    return [
        found
        for name, every in shared.items()
        for found in keys.findings(name, every, files[name], shared)
    ]
