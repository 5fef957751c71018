"""Preflight: interfaces, ports, and the addresses that things are fetched from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.core.findings import Finding
from lockstep.inventory.cluster import HIDDEN, SHOWN, is_connectx
from lockstep.inventory.host import HostPlan
from lockstep.preflight import containers
from lockstep.preflight.ask import port_owners


def findings(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """Ports that are taken, interfaces that are not there, addresses that do not answer."""
    yield from _ports(plan, facts)
    yield from _fabric(plan, facts["fabric"])
    for url, fault in facts["reach"].items():
        if fault:
            message = f"cannot reach {url}: {fault}"
            remedy = "Check name resolution and proxy, or set a mirror in `sources`."
            yield Finding("unreachable", "error", plan.name, message, remedy)


def _fabric(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    hidden = [name for name in facts["absent"] if is_connectx(name)]
    if hidden:
        waiting = ", ".join(target.name for target in plan.targets if target.group)
        message = f"there is no network interface {' nor '.join(hidden)}, which `fabric` names"
        message += f": {HIDDEN}"
        message += f". Targets that do not start without: {waiting}" if waiting else ""
        remedy = f"{SHOWN[0].upper()}{SHOWN[1:]}."
        yield Finding("no-cable", "warning", plan.name, message, remedy)
    known = ", ".join(facts["known"])
    for name in facts["absent"]:
        if name not in hidden:
            message = f"there is no network interface {name}, which `fabric` names"
            remedy = f"It has {known}: correct the inventory, or look at the card."
            yield Finding("no-interface", "error", plan.name, message, remedy)
    if plan.settings.fabric.netplan and facts["wireless"]:
        message = (
            f"it is reached by {facts['wireless']}, and `netplan apply`, which gives the fast link "
            "its addresses, can have NetworkManager drop the Wi-Fi for seconds"
        )
        remedy = (
            "Deploy over a cable this once. Without one the deploy logs in anew, and where it "
            "cannot within 40 s the addresses of before come back."
        )
        yield Finding("wifi", "warning", plan.name, message, remedy)
    if plan.settings.fabric.netplan and not facts["netplan"]:
        message = "netplan is not installed, and `fabric.netplan` is on"
        remedy = "`apt-get install netplan.io` there, or set the addresses otherwise."
        yield Finding("no-netplan", "error", plan.name, message, remedy)


def _ports(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    owners = port_owners(plan)
    # They are gone before anything of ours starts.
    leaving = containers.adopted(plan, facts["docker"]).values()
    for text, listener in facts["listeners"].items():
        port = int(text)
        if any(port in each["ports"] or each["id"] in listener["unit"] for each in leaving):
            continue
        # A container's process lives in Docker's cgroup, not in its unit's; once this host has
        # been deployed to, such a port is taken by an engine of ours.
        in_docker = facts["units_held"] and "docker" in listener["unit"]
        if in_docker or listener["ours"]:
            continue
        message = (
            f"port {port} of {owners.get(port, 'this stack')} is taken by "
            f"{listener['process']} ({listener['unit'] or 'no unit'})"
        )
        remedy = (
            "Stop that process, or set another port in targets, gateway, webui, monitoring "
            "or backup."
        )
        yield Finding("port-taken", "error", plan.name, message, remedy)
