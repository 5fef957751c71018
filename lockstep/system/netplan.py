"""The addresses of the fast link between Sparks, as a netplan file."""

from __future__ import annotations

from typing import Any

from lockstep.files.managed_file import ManagedFile, command
from lockstep.files.templating import render
from lockstep.inventory.cluster import is_connectx
from lockstep.inventory.settings import Settings

# The name of NVIDIA's own instructions for two Sparks: what followed them is a finding, and never
# beside ours in force.
NETPLAN = "/etc/netplan/40-cx7.yaml"
PROGRAM = command("fabric")


def netplan_files(settings: Settings) -> tuple[ManagedFile, ...]:
    """The file, of mode 0600 as netplan demands; () where the host has its addresses otherwise."""
    fabric = settings.fabric
    if not fabric.netplan:
        return ()
    text = render("system/netplan.yaml.j2", interfaces=fabric.interfaces, mtu=fabric.mtu)
    return (ManagedFile(NETPLAN, text, mode="0600", stage="fabric"),)


def question(settings: Settings) -> dict[str, Any]:
    """What to ask the reader `network.fabric`."""
    return {"path": NETPLAN, "interfaces": list(settings.fabric.interfaces)}


def amiss(settings: Settings, found: dict[str, Any]) -> list[str]:
    """What of the interfaces in force is not as it should be, where a cable is plugged in."""
    wrong = []
    for name, address in settings.fabric.interfaces.items():
        have = found["interfaces"].get(name)
        if have is None or not have["carrier"]:
            continue
        if address not in have["addresses"]:
            wrong.append(f"{name} has no address {address}")
        if have["mtu"] != settings.fabric.mtu:
            wrong.append(f"{name} has MTU {have['mtu']} instead of {settings.fabric.mtu}")
    return wrong


def absent(settings: Settings, found: dict[str, Any]) -> list[str]:
    """Interfaces that the inventory names and the host never had: no cable would bring them."""
    return [
        name
        for name in settings.fabric.interfaces
        if found["interfaces"].get(name) is None and not is_connectx(name)
    ]
