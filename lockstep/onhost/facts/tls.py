"""Certificates that the gateway is to have: whether this host can give them to it, and how long."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import time
from http.client import HTTPConnection, HTTPException
from typing import Any

from lockstep.onhost.facts.reading import Facts, run

#: A certificate that ends sooner than this is told, days: its owner has to do something.
SOON_DAYS = 21
DAY_S = 86400
_TAILSCALED = "/run/tailscale/tailscaled.sock"
_ACCOUNT = "caddy"
_LIMIT_S = 10


def read(asked: dict[str, Any]) -> dict[str, Any]:
    """{"fault": why there is none, or "", "days": until it ends, null for one that renews itself}.
    Asked: "certificate" and "key" (paths), "tailscale" (the names that it is for), or "own"; {}
    where no certificate is wanted. "now": seconds since 1970.
    """
    if "certificate" in asked:
        return _yours(asked["certificate"], asked["key"], asked.get("now"))
    if "tailscale" in asked:
        return {"fault": _tailscale(asked["tailscale"]), "days": None}
    if "own" in asked and not shutil.which("openssl"):
        return {"fault": "there is no openssl, which makes the authority", "days": None}
    return {"fault": "", "days": None}


def findings(asked: dict[str, Any]) -> Facts:
    """What is wrong with a certificate of yours, or soon will be. Asked: As for `read`."""
    if "certificate" not in asked:
        return
    found = read(asked)
    if found["fault"]:
        yield "certificate", asked["certificate"], found["fault"]
    elif found["days"] < SOON_DAYS:
        yield "certificate", asked["certificate"], f"ends in {found['days']} days"


def _yours(certificate: str, key: str, now: float | None) -> dict[str, Any]:
    try:
        # It compares the two.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as fault:
        why = "the key does not belong to it" if "MISMATCH" in str(fault.reason) else fault.reason
        return {"fault": f"{certificate} with {key}: {why or 'no PEM'}", "days": None}
    except OSError as fault:
        path = next((each for each in (certificate, key) if not os.path.exists(each)), certificate)
        return {"fault": f"{path}: {fault.strerror}", "days": None}
    end = ends(certificate)
    if end is None:
        return {"fault": f"{certificate}: openssl does not say when it ends", "days": None}
    left = ssl.cert_time_to_seconds(end) - (time.time() if now is None else now)
    over = f"{certificate} has ended on {end}" if left <= 0 else ""
    return {"fault": over, "days": int(left // DAY_S)}


def ends(certificate: str) -> str | None:
    """When a certificate in a file ends, as openssl says it; None where it does not."""
    shown = run("openssl", "x509", "-in", certificate, "-noout", "-enddate").stdout
    end = re.search(r"notAfter=(.+)", shown)
    return end[1] if end else None


def ends_at(certificate: str) -> float | None:
    """The same in Unix time, seconds."""
    end = ends(certificate)
    return None if end is None else ssl.cert_time_to_seconds(end)


def _tailscale(names: list[str]) -> str:
    try:
        status = _local("/localapi/v0/status")
    except (OSError, HTTPException, ValueError) as fault:
        return f"tailscaled does not answer at {_TAILSCALED}: {fault}"
    given = [name.lower() for name in status.get("CertDomains") or []]
    if not given:
        return "the tailnet gives no certificates: enable HTTPS in its admin console, DNS page"
    if lacking := [name for name in names if name not in given]:
        return f"tailscaled has no certificate for {', '.join(lacking)}, but for {', '.join(given)}"
    pid = run("systemctl", "show", "--property=MainPID", "--value", "--", "tailscaled").stdout
    try:
        with open(f"/proc/{pid.strip()}/environ", "rb") as file:
            variables = file.read().decode("utf-8", "replace").split("\0")
    except OSError as fault:
        return f"tailscaled.service does not run: {fault.strerror}"
    if f"TS_PERMIT_CERT_UID={_ACCOUNT}" not in variables:
        remedy = f"put TS_PERMIT_CERT_UID={_ACCOUNT} into /etc/default/tailscaled and restart it"
        return f"tailscaled gives {_ACCOUNT} no certificate: {remedy}"
    return ""


def _local(path: str) -> dict[str, Any]:
    """A document of tailscaled's local interface."""
    connection = HTTPConnection("local-tailscaled.sock", timeout=_LIMIT_S)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.sock.settimeout(_LIMIT_S)
        connection.sock.connect(_TAILSCALED)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"it answers {answer.status}")
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it answers with something else")
    return found
