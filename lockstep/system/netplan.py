"""The addresses of the fast link between Sparks, as a netplan file."""

from __future__ import annotations

from typing import Any

from lockstep.files.managed_file import ManagedFile, command
from lockstep.files.templating import render_template
from lockstep.inventory.cluster import is_connectx
from lockstep.inventory.settings import Settings

# The name in NVIDIA's own instructions for two Sparks. A file made by them is a finding, and is
# never in force beside ours.
NETPLAN = "/etc/netplan/40-cx7.yaml"
PROGRAM = command("fabric")


def netplan_files(settings: Settings) -> tuple[ManagedFile, ...]:
    """Return the file, of mode 0600 as netplan demands; () where no addresses are to be written."""
    fabric = settings.fabric
    if not fabric.netplan:
        return ()
    text = render_template("system/netplan.yaml.j2", interfaces=fabric.interfaces, mtu=fabric.mtu)
    return (ManagedFile(NETPLAN, text, mode="0600", stage="fabric"),)


def interface_faults(settings: Settings, network_facts: dict[str, Any]) -> list[str]:
    """Return the faults of the interfaces in force, where a cable is plugged in."""
    wrong = []
    for name, address in settings.fabric.interfaces.items():
        have = network_facts["interfaces"].get(name)
        if have is None or not have["carrier"]:
            continue
        if address not in have["addresses"]:
            wrong.append(f"{name} has no address {address}")
        if have["mtu"] != settings.fabric.mtu:
            wrong.append(f"{name} has MTU {have['mtu']} instead of {settings.fabric.mtu}")
    return wrong


def absent_interfaces(settings: Settings, network_facts: dict[str, Any]) -> list[str]:
    """Return the inventory's interfaces that the host never had: no cable would bring them."""
    return [
        name
        for name in settings.fabric.interfaces
        if network_facts["interfaces"].get(name) is None and not is_connectx(name)
    ]
