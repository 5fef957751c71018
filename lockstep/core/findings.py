"""A finding about a recipe or a host that needs the user's attention, with a stable code."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]

#: What no deploy survives: locked wheels and images are of another architecture, accounts and
#: interfaces that its files name are not there, two hosts have one key or two authorities, a key is
#: on a host that is left out, what is somebody else's has a name of ours, apt can install nothing.
#: These cannot be waived.
FATAL = frozenset(
    {
        *("architecture", "docker", "no-account", "no-interface", "no-netplan", "no-sysctl"),
        *("key-differs", "key-elsewhere", "not-ours", "twin", "apt-broken"),
    }
)


#: Every code that a finding can have, and `engine-kernel`, which the engine's check on a host has.
CODES = FATAL | {
    *("apt-busy", "backup-here", "cannot-run", "cdi-stale", "certificate", "certificate-ends"),
    *("clock", "cluster-copies", "cluster-degree", "cluster-engine", "cluster-heads"),
    *("cluster-layers", "cluster-ray", "cluster-size", "cuda", "cuda-newer", "dgx-os"),
    *("disk-short", "docker-gpu", "docker-second", "draft-corrupts", "draft-licence-refused"),
    *("draft-licence-unknown", "draft-too-long", "driver", "driver-version", "eagle-on-moving-tag"),
    *("earlyoom-late", "engine-kernel", "engine-not-asked", "engine-version", "entry-point"),
    *("fit-none", "fit-tight", "fit-unknown", "freezing-backend", "gpu", "gpu-clock"),
    "guard-unknown",
    *("hooks-not-run", "host-offload", "image-cuda-newer", "kernel", "kernels-corrupt"),
    *("key-unknown", "kind-unsure", "kind-unused", "known-bad", "licence-refused"),
    *("licence-unknown", "memory", "memory-available", "mtp-inherits-backend", "needs-cluster"),
    *("no-cable", "not-fetched", "other-host", "port-taken", "public-address", "restart-policy"),
    *("secret-on-command-line", "sparkrun-newer", "tensorizer-quantised", "unreachable"),
    *("too-many-states", "unreadable", "upgrade-pending", "utilization-high"),
    *("utilization-too-high", "utilization-unset", "vision-contradiction", "vision-unused"),
    "wifi",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to act on.

    Attributes:
        code: Stable name ("licence-refused"); what the inventory waives it by.
        severity: An "error" stops a deploy, a "warning" does not.
        subject: What it is about: a recipe, a host, a target.
        message: What was expected and what was found, with numbers and units.
        remedy: The next step.
    """

    code: str
    severity: Severity
    subject: str
    message: str
    remedy: str = ""


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Errors first, then by subject and code; the order is stable, so output can be compared."""
    rank = {"error": 0, "warning": 1}
    return sorted(findings, key=lambda item: (rank[item.severity], item.subject, item.code))


def split_waived(
    findings: Iterable[Finding], waived: Collection[str]
) -> tuple[list[Finding], list[Finding]]:
    """(findings that stand, findings that the inventory waives by code), both ordered."""
    every = ordered(findings)
    stand = [item for item in every if item.code not in waived]
    return stand, [item for item in every if item.code in waived]
