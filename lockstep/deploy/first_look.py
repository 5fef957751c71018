"""A host before its first deploy: whether it can be reached, may be changed, and is fit for it.

What it must be is preflight's to say. Only what stands before that is judged here: ssh and sudo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep import preflight
from lockstep.core.findings import Finding, ordered
from lockstep.deploy.checked import stand_ins
from lockstep.deploy.plan import Download
from lockstep.fleet.hosts import Answer, Host, ask, read
from lockstep.fleet.login import NO_CONNECTION, known_name, typed_login
from lockstep.host.intended import Intended
from lockstep.lock.pins import FilePin, Pins
from lockstep.preflight import dgx_os, disks, hardware

#: Seconds that a host has for an answer.
LIMIT_S = 120.0
#: As `Finding.code`.
NO_LOGIN, NO_SUDO, NO_ANSWER = "no-login", "no-sudo", "unreadable"

#: Part of what ssh says → what it means, and what to do. `{at}` is what ssh calls the host.
_SSH = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is another than the one known here",
        "Only if it was installed anew: `ssh-keygen -R {at}`, then `ssh {to}` shows the new "
        "fingerprint. Accept it if `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the Spark "
        "itself shows the same.",
    ),
    (
        "Host key verification failed",
        "its host key is not known here yet",
        "`ssh {to}` shows the fingerprint. Accept it if "
        "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the Spark itself shows the same.",
    ),
    (
        "Permission denied",
        "it lets no key of yours log in",
        "`ssh-copy-id {to}` brings yours there. The account is the one of its first boot.",
    ),
    (
        "Could not resolve hostname",
        "nobody here knows its name",
        "Name its address instead, or put the name into ~/.ssh/config.",
    ),
)
_UNREACHED = "Is it on, in this network, and does `ssh {to}` reach it?"


@dataclass(frozen=True)
class Readiness:
    """One host: what it is, "" where it did not say; and what speaks against a deploy."""

    host: str
    what: str = ""
    findings: Sequence[Finding] = field(default=())


def expected(hosts: Sequence[Host], downloads: Sequence[Download]) -> Pins:
    """Pins before there is a lock, with the sizes of the models that the plan knows."""
    pins = stand_ins([host.plan for host in hosts])
    sizes = {item.what: item.size or 0 for item in downloads}
    models = {
        name: replace(pin, files=(FilePin("weights", sizes.get(name, 0)),))
        for name, pin in pins.models.items()
    }
    return replace(pins, models=models)


def look(host: Host, pins: Pins) -> Readiness:
    """Log in to a host, try sudo, and judge it as preflight does; no secret is asked for."""
    answer = ask(host.login, ("sudo", "-n", "true"), limit_s=LIMIT_S)
    if answer.code == NO_CONNECTION:
        return Readiness(host.name, findings=[_no_login(host, answer)])
    sudo = not answer.fault and answer.code == 0
    this = Intended(host.plan, pins)
    question = {**preflight.questions(this.plan, pins), "packages": this.packages}
    facts, fault = read(host.login, "preflight", question, sudo=sudo, limit_s=LIMIT_S)
    found = [] if sudo else [_no_sudo(host)]
    if facts is None:
        remedy = "A Spark has Python 3.11 or later as python3."
        return Readiness(host.name, findings=[*found, _error(NO_ANSWER, host, fault, remedy)])
    if sudo:
        found += preflight.findings(this.plan, pins, {**facts, "foreign": {}})
    else:
        # The rest cannot be read without it.
        found += [*hardware.findings(this.plan, facts), *disks.findings(this.plan, pins, facts)]
    return Readiness(host.name, _what(host, facts), ordered(map(_warn_of_architecture, found)))


def _warn_of_architecture(finding: Finding) -> Finding:
    # The plan and the lock can be of another architecture; the inventory then says so.
    return replace(finding, severity="warning") if finding.code == "architecture" else finding


def _what(host: Host, facts: dict[str, Any]) -> str:
    """ "aarch64, DGX OS 7.5.0, driver 580.95.05, 3400 GiB free"."""
    system = f"DGX OS {dgx_os.shown(facts['dgx'])}" if facts["dgx"] else facts["system"]
    driver = facts["gpu"].get("driver_version")
    free = facts["disks"][host.plan.settings.paths.hub_cache]["free"] / disks.GIB
    parts = (
        facts["architecture"],
        system,
        f"driver {driver}" if driver else "no NVIDIA driver",
        f"{free:.0f} GiB free",
    )
    return ", ".join(parts)


def _no_login(host: Host, answer: Answer) -> Finding:
    at, to = known_name(host.name, host.data), typed_login(host.name, host.data)
    for part, message, remedy in _SSH:
        if part in answer.err:
            return _error(NO_LOGIN, host, message, remedy.format(at=at, to=to))
    return _error(NO_LOGIN, host, answer.fault, _UNREACHED.format(to=to))


def _no_sudo(host: Host) -> Finding:
    user = host.data.get("ssh_user") or "ACCOUNT"
    there = f"ssh -t {typed_login(host.name, host.data)} " if host.login.words else ""
    remedy = (
        f"`{there}sudo visudo -f /etc/sudoers.d/90-deploy`, with the line "
        f"`{user} ALL=(ALL) NOPASSWD: ALL`."
    )
    return _error(NO_SUDO, host, "its account needs a password for sudo", remedy)


def _error(code: str, host: Host, message: str, remedy: str) -> Finding:
    return Finding(code, "error", host.name, message, remedy)
