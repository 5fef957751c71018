"""A look at a host before its first deploy: can it be reached and changed, and is it fit.

Preflight judges the host itself. This module judges only what comes before that: ssh and sudo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep import preflight
from lockstep.core.findings import Finding, in_order
from lockstep.deploy.checked import stand_ins
from lockstep.deploy.plan import Download
from lockstep.fleet.hosts import Host, HostAnswer, ask, read
from lockstep.fleet.login import NO_CONNECTION, known_name, typed_login
from lockstep.host.desired_state import DesiredState
from lockstep.lock.pins import FilePin, Pins
from lockstep.preflight import dgx_os, disks, hardware

#: Seconds that a host has for an answer.
LIMIT_S = 120.0
#: Values of `Finding.code`.
NO_LOGIN, NO_SUDO, NO_ANSWER = "no-login", "no-sudo", "unreadable"

#: A part of ssh's message, its meaning, and the remedy. `{at}` is ssh's name for the host.
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
    """One host: its description, or "" if it gave none, and the findings against a deploy."""

    host: str
    description: str = ""
    findings: Sequence[Finding] = field(default=())


def expected_pins(hosts: Sequence[Host], downloads: Sequence[Download]) -> Pins:
    """Return pins for use before there is a lock, with the model sizes that the plan knows."""
    pins = stand_ins([host.plan for host in hosts])
    sizes = {item.name: item.size or 0 for item in downloads}
    checkpoints = {
        name: replace(pin, files=(FilePin("weights", sizes.get(name, 0)),))
        for name, pin in pins.checkpoints.items()
    }
    return replace(pins, checkpoints=checkpoints)


def look(host: Host, pins: Pins) -> Readiness:
    """Log in to a host, try sudo, and judge it as preflight does, without asking for a secret."""
    answer = ask(host.login, ("sudo", "-n", "true"), limit_s=LIMIT_S)
    if answer.code == NO_CONNECTION:
        return Readiness(host.name, findings=[_no_login(host, answer)])
    sudo = not answer.fault and answer.code == 0
    desired_state = DesiredState(host.plan, pins)
    question = {**preflight.questions(desired_state.plan, pins), "packages": desired_state.packages}
    facts, fault = read(host.login, "preflight", question, sudo=sudo, limit_s=LIMIT_S)
    findings = [] if sudo else [_no_sudo(host)]
    if facts is None:
        remedy = "A Spark has Python 3.11 or later as python3."
        return Readiness(host.name, findings=[*findings, _error(NO_ANSWER, host, fault, remedy)])
    if sudo:
        findings += preflight.findings(desired_state.plan, pins, {**facts, "foreign": {}})
    else:
        # The other checks need facts that only root reads.
        findings += [
            *hardware.findings(desired_state.plan, facts),
            *disks.findings(desired_state.plan, pins, facts),
        ]
    return Readiness(
        host.name, _description(host, facts), in_order(map(_warn_of_architecture, findings))
    )


def _warn_of_architecture(finding: Finding) -> Finding:
    # Plan and lock can be of another architecture, if the inventory says so.
    return replace(finding, severity="warning") if finding.code == "architecture" else finding


def _description(host: Host, facts: dict[str, Any]) -> str:
    """Return a description such as "aarch64, DGX OS 7.5.0, driver 580.95.05, 3400 GiB free"."""
    system = f"DGX OS {dgx_os.release_text(facts['dgx'])}" if facts["dgx"] else facts["system"]
    driver = facts["gpu"].get("driver_version")
    free = facts["disks"][host.plan.settings.paths.hub_cache]["free"] / disks.GIB
    parts = (
        facts["architecture"],
        system,
        f"driver {driver}" if driver else "no NVIDIA driver",
        f"{free:.0f} GiB free",
    )
    return ", ".join(parts)


def _no_login(host: Host, answer: HostAnswer) -> Finding:
    at, to = known_name(host.name, host.data), typed_login(host.name, host.data)
    for part, message, remedy in _SSH:
        if part in answer.err:
            return _error(NO_LOGIN, host, message, remedy.format(at=at, to=to))
    return _error(NO_LOGIN, host, answer.fault, _UNREACHED.format(to=to))


def _no_sudo(host: Host) -> Finding:
    user = host.data.get("ssh_user") or "ACCOUNT"
    command_prefix = f"ssh -t {typed_login(host.name, host.data)} " if host.login.words else ""
    remedy = (
        f"`{command_prefix}sudo visudo -f /etc/sudoers.d/90-deploy`, with the line "
        f"`{user} ALL=(ALL) NOPASSWD: ALL`."
    )
    return _error(NO_SUDO, host, "its account needs a password for sudo", remedy)


def _error(code: str, host: Host, message: str, remedy: str) -> Finding:
    return Finding(code, "error", host.name, message, remedy)
