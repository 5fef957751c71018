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
    """Return the question for the reader `tls`."""
    tls = plan.settings.gateway.tls
    if isinstance(tls, Certificate):
        # A certificate that the deploy brings is judged earlier, by `given_certificate`.
        return {} if tls.given_files else certificate_paths(tls)
    if tls == "tailscale":
        return {"tailscale": [name for name in plan.names if name.endswith(".ts.net")]}
    return {"own": True} if tls else {}


def given_certificate(chain: str, key: str, now: float) -> dict[str, Any]:
    """Return the answer that the reader `tls` would give, for a certificate on this machine.

    Both are PEM; the chain has its own certificate first.
    """
    # These take a while to import, and few inventories have such a certificate.
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
    seconds_left = end.timestamp() - now
    over = f"the certificate has ended on {end:%Y-%m-%d}" if seconds_left <= 0 else ""
    return {"fault": over, "days": int(seconds_left // DAY_S)}


def findings(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield an error for a missing, wrong or expired certificate, a warning if it ends soon."""
    tls = plan.settings.gateway.tls
    if facts["fault"]:
        message = f"gateway.tls: {facts['fault']}"
        remedy = "Put it right, or set gateway.tls to another value (`lockstep help tls`)."
        yield Finding("certificate", "error", plan.name, message, remedy)
    elif facts["days"] is not None and facts["days"] < SOON_DAYS:
        message = f"the gateway's certificate ends in {facts['days']} days"
        has_given_files = isinstance(tls, Certificate) and tls.given_files
        then = (
            ", and deploy"
            if has_given_files
            else ", then `sudo systemctl restart lockstep-tls` there"
        )
        yield Finding("certificate-ends", "warning", plan.name, message, f"Renew it{then}.")
