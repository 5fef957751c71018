"""Preflight: the certificate of the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Certificate
from lockstep.onhost.facts.tls import DAY_S, SOON_DAYS
from lockstep.units.tls_unit import certificate_paths


def question(plan: HostPlan) -> dict[str, Any]:
    """What to ask the reader `tls`."""
    wanted = plan.settings.gateway.tls
    if isinstance(wanted, Certificate):
        # One that the deploy brings is judged before that, by `brought`.
        return {} if wanted.given else certificate_paths(wanted)
    if wanted == "tailscale":
        return {"tailscale": [name for name in plan.names if name.endswith(".ts.net")]}
    return {"own": True} if wanted else {}


def brought(chain: str, key: str, now: float) -> dict[str, Any]:
    """As the reader `tls` answers, of a certificate on this machine: PEM, its own first."""
    # They take a while to import, and few inventories have such a certificate.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificates

    try:
        certificate = load_pem_x509_certificates(chain.encode())[0]
    except ValueError:
        return {"fault": "the certificate is no PEM", "days": None}
    try:
        private = load_pem_private_key(key.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return {"fault": "the key is no PEM, or has a password", "days": None}
    if private.public_key() != certificate.public_key():
        return {"fault": "the key does not belong to the certificate", "days": None}
    end = certificate.not_valid_after_utc
    left = end.timestamp() - now
    over = f"the certificate has ended on {end:%Y-%m-%d}" if left <= 0 else ""
    return {"fault": over, "days": int(left // DAY_S)}


def findings(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """One that is missing, wrong or over is an error, one that ends soon a warning."""
    tls = plan.settings.gateway.tls
    if facts["fault"]:
        message = f"gateway.tls: {facts['fault']}"
        remedy = "Put it right, or set gateway.tls to another value (`lockstep help tls`)."
        yield Finding("certificate", "error", plan.name, message, remedy)
    elif facts["days"] is not None and facts["days"] < SOON_DAYS:
        message = f"the gateway's certificate ends in {facts['days']} days"
        given = isinstance(tls, Certificate) and tls.given
        then = ", and deploy" if given else ", then `sudo systemctl restart lockstep-tls` there"
        yield Finding("certificate-ends", "warning", plan.name, message, f"Renew it{then}.")
