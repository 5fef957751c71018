"""Preflight: the certificate of the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Certificate
from lockstep.onhost.facts.tls import SOON_DAYS


def question(plan: HostPlan) -> dict[str, Any]:
    """What to ask the reader `tls`."""
    wanted = plan.settings.gateway.tls
    if isinstance(wanted, Certificate):
        return {"certificate": wanted.certificate, "key": wanted.key}
    if wanted == "tailscale":
        return {"tailscale": [name for name in plan.names if name.endswith(".ts.net")]}
    return {"own": True} if wanted else {}


def findings(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """One that is missing, wrong or over is an error, one that ends soon a warning."""
    if facts["fault"]:
        yield Finding(
            "certificate",
            "error",
            plan.name,
            f"gateway.tls: {facts['fault']}",
            "Put it right there, or set gateway.tls to another value (docs/tls.md).",
        )
    elif facts["days"] is not None and facts["days"] < SOON_DAYS:
        yield Finding(
            "certificate-ends",
            "warning",
            plan.name,
            f"the gateway's certificate ends in {facts['days']} days",
            "Renew it, then `sudo systemctl restart lockstep-tls` there.",
        )
