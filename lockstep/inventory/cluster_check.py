"""Contradictions in one host's clusters and fabric; `cluster_join` compares the hosts."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from lockstep.inventory.cluster import ClusterData, Fabric
from lockstep.inventory.refusals import Refusals
from lockstep.inventory.settings import Settings
from lockstep.onhost.core.schema import Refusal

_LEAST = {"pair": 2, "switch": 2, "ring": 3}


def clusters(every: Mapping[str, ClusterData]) -> Refusals:
    """Clusters that are not what their topology says."""
    for name, data in every.items():
        count, least = len(data.hosts), _LEAST[data.topology]
        if count < least or (data.topology == "pair" and count > 2):
            yield Refusal(
                f"clusters.{name}.hosts is no {data.topology}",
                f"{count} hosts",
                "2 in a pair, 2 or more at a switch, 3 or more in a ring",
            )


def targets(settings: Settings) -> Refusals:
    """Targets of a cluster that is not there, or that the host is no member of."""
    for name, target in settings.targets.items():
        if target.cluster is None:
            continue
        if target.cluster not in settings.clusters:
            yield Refusal(
                f"targets.{name}.cluster names an unknown cluster",
                found=repr(target.cluster),
                allowed=", ".join(settings.clusters) or "none: there is no key clusters",
            )
        members = settings.clusters[target.cluster].hosts
        if settings.name not in members:
            yield Refusal(
                f"targets.{name} is of cluster {target.cluster}, and {settings.name} is no member",
                found=f"clusters.{target.cluster}.hosts: {', '.join(members)}",
                remedy="Bind it on the members only, or add this host to them.",
            )


def fabric(fabric: Fabric) -> Refusals:
    """Contradictions in the data of the fast link."""
    networks: dict[str, str] = {}
    for name, text in fabric.interfaces.items():
        network = str(ipaddress.ip_interface(text).network)
        if network in networks:
            yield Refusal(
                f"fabric.interfaces.{name} is in the network of {networks[network]}",
                found=network,
                remedy="Give each interface, both twins of a port too, a network of its own: in "
                "one network the kernel sends everything over the first.",
            )
        networks[network] = name
    for name, device in fabric.rdma.items():
        if name not in fabric.interfaces:
            yield Refusal(
                f"fabric.rdma.{name} names no interface of the link",
                found=repr(device),
                allowed="interfaces: " + (", ".join(fabric.interfaces) or "none"),
            )
    if fabric.netplan and not fabric.interfaces:
        yield Refusal(
            "fabric.netplan is on and fabric.interfaces is empty",
            remedy="List the interfaces with their addresses.",
        )
