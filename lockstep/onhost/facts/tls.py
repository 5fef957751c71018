"""Certificates for the gateway: whether this host can provide them, and until when."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import time
from typing import Any

from lockstep.onhost.core import http_client, process_liveness
from lockstep.onhost.facts.reader_helpers import Facts, run
from lockstep.onhost.systemd import units

#: Days; a certificate that ends sooner is reported, because its owner must act.
SOON_DAYS = 21
DAY_S = 86400
_TAILSCALED = "/run/tailscale/tailscaled.sock"
_TAILSCALED_UNIT = "tailscaled.service"
_ACCOUNT = "caddy"
_LIMIT_S = 10


def read(question: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the gateway's certificate.

    Args:
        question: "certificate" and "key" (paths), "tailscale" (the names that it is for), or "own";
            {} if no certificate is wanted. "now": seconds since 1970.

    Returns:
        {"fault": why there is none, or "", "days": until it ends, null for one that renews itself}.
    """
    if "certificate" in question:
        return _owner_certificate_state(
            question["certificate"], question["key"], question.get("now")
        )
    if "tailscale" in question:
        return {"fault": _tailscale_fault(question["tailscale"]), "days": None}
    if "own" in question and not shutil.which("openssl"):
        return {"fault": "there is no openssl, which makes the authority", "days": None}
    return {"fault": "", "days": None}


def findings(question: dict[str, Any]) -> Facts:
    """Yield a present or coming fault of the owner's certificate; the question is as for `read`."""
    if "certificate" not in question:
        return
    certificate = read(question)
    if certificate["fault"]:
        yield "certificate", question["certificate"], certificate["fault"]
    elif certificate["days"] < SOON_DAYS:
        yield "certificate", question["certificate"], f"ends in {certificate['days']} days"


def _owner_certificate_state(certificate: str, key: str, now: float | None) -> dict[str, Any]:
    try:
        # This compares the certificate with the key.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as fault:
        why = "the key does not belong to it" if "MISMATCH" in str(fault.reason) else fault.reason
        return {"fault": f"{certificate} with {key}: {why or 'no PEM'}", "days": None}
    except OSError as fault:
        path = next(
            (file_path for file_path in (certificate, key) if not os.path.exists(file_path)),
            certificate,
        )
        return {"fault": f"{path}: {fault.strerror}", "days": None}
    end = end_text(certificate)
    if end is None:
        return {"fault": f"{certificate}: openssl does not say when it ends", "days": None}
    seconds_left = ssl.cert_time_to_seconds(end) - (time.time() if now is None else now)
    over = f"{certificate} has ended on {end}" if seconds_left <= 0 else ""
    return {"fault": over, "days": int(seconds_left // DAY_S)}


def end_text(certificate: str) -> str | None:
    """Return the end of a certificate in a file, as openssl prints it, or None."""
    output = run("openssl", "x509", "-in", certificate, "-noout", "-enddate").stdout
    end = re.search(r"notAfter=(.+)", output)
    return end[1] if end else None


def end_time(certificate: str) -> float | None:
    """Return the end of a certificate in Unix time, seconds, or None."""
    end = end_text(certificate)
    return None if end is None else ssl.cert_time_to_seconds(end)


def _tailscale_fault(names: list[str]) -> str:
    try:
        status = _tailscaled_document("/localapi/v0/status")
    except (*http_client.FAULTS, ValueError) as fault:
        return f"tailscaled does not answer at {_TAILSCALED}: {fault}"
    certificate_names = [name.lower() for name in status.get("CertDomains") or []]
    if not certificate_names:
        return "the tailnet gives no certificates: enable HTTPS in its admin console, DNS page"
    if lacking := [name for name in names if name not in certificate_names]:
        return (
            f"tailscaled has no certificate for {', '.join(lacking)}, but for "
            f"{', '.join(certificate_names)}"
        )
    pid = units.units_by_name([_TAILSCALED_UNIT])[_TAILSCALED_UNIT].main_pid
    try:
        variables = process_liveness.variables(pid)
    except OSError as fault:
        return f"tailscaled.service does not run: {fault.strerror}"
    if variables.get("TS_PERMIT_CERT_UID") != _ACCOUNT:
        remedy = f"put TS_PERMIT_CERT_UID={_ACCOUNT} into /etc/default/tailscaled and restart it"
        return f"tailscaled gives {_ACCOUNT} no certificate: {remedy}"
    return ""


def _tailscaled_document(path: str) -> dict[str, Any]:
    """Return a document of tailscaled's local interface."""
    url = f"http://local-tailscaled.sock{path}"
    answer = http_client.ask(url, _LIMIT_S, unix_socket=_TAILSCALED)
    if answer.status != 200:
        raise ValueError(f"it answers {answer.status}")
    names = json.loads(answer.body)
    if not isinstance(names, dict):
        raise ValueError("it answers with something else")
    return names
