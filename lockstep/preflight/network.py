"""Preflight: interfaces, ports, and the addresses of downloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.core.findings import Finding
from lockstep.inventory.cluster import HIDDEN, SHOWN, is_connectx
from lockstep.inventory.host import HostPlan
from lockstep.preflight import containers
from lockstep.preflight.ask import port_owners


def findings(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield ports in use, interfaces that do not exist, and addresses that do not answer."""
    yield from _ports(plan, facts)
    yield from _fabric(plan, facts["fabric"])
    for url, fault in facts["reach"].items():
        if fault:
            message = f"cannot reach {url}: {fault}"
            remedy = "Check name resolution and proxy, or set a mirror in `sources`."
            yield Finding("unreachable", "error", plan.name, message, remedy)


def _fabric(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    hidden_ports = [name for name in facts["absent"] if is_connectx(name)]
    if hidden_ports:
        waiting = ", ".join(model.name for model in plan.models if model.group)
        message = (
            f"there is no network interface {' nor '.join(hidden_ports)}, which `fabric` names"
        )
        message += f": {HIDDEN}"
        message += f". Models that do not start without: {waiting}" if waiting else ""
        remedy = f"{SHOWN[0].upper()}{SHOWN[1:]}."
        yield Finding("no-cable", "warning", plan.name, message, remedy)
    known_names = ", ".join(facts["known"])
    for name in facts["absent"]:
        if name not in hidden_ports:
            message = f"there is no network interface {name}, which `fabric` names"
            remedy = f"It has {known_names}: correct the inventory, or look at the card."
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
    # These containers are gone before anything of ours starts.
    leaving = containers.containers_to_adopt(plan, facts["docker"]).values()
    for text, listener in facts["listeners"].items():
        port = int(text)
        if any(
            port in leaving_container["ports"] or leaving_container["id"] in listener["unit"]
            for leaving_container in leaving
        ):
            continue
        # A container's process is in Docker's cgroup, not in its unit's. Once this host has been
        # deployed to, an engine of ours has such a port.
        in_docker = facts["units_held"] and "docker" in listener["unit"]
        if in_docker or listener["ours"]:
            continue
        message = (
            f"port {port} of {owners.get(port, 'this stack')} is taken by "
            f"{listener['process']} ({listener['unit'] or 'no unit'})"
        )
        remedy = (
            "Stop that process, or set another port in models, gateway, webui, monitoring "
            "or backup."
        )
        yield Finding("port-taken", "error", plan.name, message, remedy)
