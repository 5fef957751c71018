"""A finding about a recipe or a host that needs the user's attention, with a stable code."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]

#: Findings that stop every deploy and cannot be waived: locked wheels and images of another
#: architecture, missing accounts or interfaces that the deploy's files name, two hosts with one key
#: or two authorities, a key on a host that is left out, a foreign thing with a name of Lockstep's,
#: an apt that can install nothing.
FATAL = frozenset(
    {
        *("architecture", "docker", "no-account", "no-interface", "no-netplan", "no-sysctl"),
        *("key-differs", "key-elsewhere", "not-ours", "clone", "apt-broken"),
    }
)


#: Every code that a finding can have, and `engine-kernel`, a code of the engine's check on a host.
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
    """One fault or warning to act on.

    Attributes:
        code: Stable name ("licence-refused"); the inventory waives findings by it.
        severity: An "error" stops a deploy, a "warning" does not.
        subject: The recipe, host or model that it is about.
        message: The expected and the found value, with numbers and units.
        remedy: The next step.
    """

    code: str
    severity: Severity
    subject: str
    message: str
    remedy: str = ""


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with errors first, then by subject and code, so output is comparable."""
    rank = {"error": 0, "warning": 1}
    return sorted(findings, key=lambda item: (rank[item.severity], item.subject, item.code))


def split_waived(
    findings: Iterable[Finding], waived_codes: Collection[str]
) -> tuple[list[Finding], list[Finding]]:
    """Return the standing findings and those that the inventory waives by code, both in order."""
    every = in_order(findings)
    stand = [item for item in every if item.code not in waived_codes]
    return stand, [item for item in every if item.code in waived_codes]
