"""Contradictions in one host's clusters and fabric; `cluster_join` compares the hosts."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from lockstep.core.errors import InventoryError
from lockstep.inventory.cluster import ClusterData, Fabric
from lockstep.inventory.settings import Settings

_LEAST = {"pair": 2, "switch": 2, "ring": 3}


def check_clusters(settings: Settings, where: Mapping[str, str]) -> None:
    """Refuse clusters and fabric data that contradict themselves.

    Args:
        settings: One host's data.
        where: Top-level key → file that gave its value.

    Raises:
        InventoryError: with file, key, what was found and what is allowed.
    """
    for name, data in settings.clusters.items():
        _check_cluster(name, data, where.get("clusters", settings.name))
    targets = where.get("targets", settings.name)
    for name, target in settings.targets.items():
        if target.cluster is None:
            continue
        if target.cluster not in settings.clusters:
            raise InventoryError(
                f"targets.{name}.cluster names an unknown cluster",
                where=targets,
                found=repr(target.cluster),
                allowed=", ".join(settings.clusters) or "none: there is no key clusters",
            )
        members = settings.clusters[target.cluster].hosts
        if settings.name not in members:
            raise InventoryError(
                f"targets.{name} is of cluster {target.cluster}, and {settings.name} is no member",
                where=targets,
                found=f"clusters.{target.cluster}.hosts: {', '.join(members)}",
                remedy="Bind it on the members only, or add this host to them.",
            )
    _check_fabric(settings.fabric, where.get("fabric", settings.name))


def _check_cluster(name: str, data: ClusterData, file: str) -> None:
    least = _LEAST[data.topology]
    if len(data.hosts) < least or (data.topology == "pair" and len(data.hosts) > 2):
        raise InventoryError(
            f"clusters.{name}.hosts is no {data.topology}",
            where=file,
            found=f"{len(data.hosts)} hosts",
            allowed="2 in a pair, 2 or more at a switch, 3 or more in a ring",
        )


def _check_fabric(fabric: Fabric, file: str) -> None:
    networks: dict[str, str] = {}
    for name, text in fabric.interfaces.items():
        network = str(ipaddress.ip_interface(text).network)
        if network in networks:
            raise InventoryError(
                f"fabric.interfaces.{name} is in the network of {networks[network]}",
                where=file,
                found=network,
                remedy="Give each interface, both twins of a port too, a network of its own: in "
                "one network the kernel sends everything over the first.",
            )
        networks[network] = name
    for name, device in fabric.rdma.items():
        if name not in fabric.interfaces:
            raise InventoryError(
                f"fabric.rdma.{name} names no interface of the link",
                where=file,
                found=repr(device),
                allowed="interfaces: " + (", ".join(fabric.interfaces) or "none"),
            )
    if fabric.netplan and not fabric.interfaces:
        raise InventoryError(
            "fabric.netplan is on and fabric.interfaces is empty",
            where=file,
            remedy="List the interfaces with their addresses.",
        )
