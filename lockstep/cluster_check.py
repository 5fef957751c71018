"""What no type can refuse in one host's clusters and fabric; `cluster_join` compares the hosts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from lockstep.cluster import TOPOLOGIES, ClusterData, Fabric
from lockstep.errors import InventoryError
from lockstep.settings import Settings

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
# What the kernel takes as the name of a network interface.
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_DEVICE = re.compile(r"[A-Za-z0-9_]*")
# Made by Docker, libvirt and VPNs, each for itself.
_NOT_OURS = ("docker", "br-", "veth", "virbr", "tailscale", "wg", "tun", "tap")
# IPv6 does not work below; ConnectX-7 takes no more.
_MTU = range(1280, 9979)
_LEAST = {"pair": 2, "switch": 2, "ring": 3}


def check_clusters(settings: Settings, where: Mapping[str, str]) -> None:
    """Refuse clusters and fabric data that contradict themselves.

    Args:
        settings: One host's data.
        where: Top-level key → file that gave its value.

    Raises:
        InventoryError: with file, key, what was found and what is allowed.
    """
    file = where.get("clusters", settings.name)
    taken = {
        settings.copy_port: "copy_port",
        **dict.fromkeys(settings.firewall.ssh_ports, "firewall.ssh_ports"),
    }
    for name, data in settings.clusters.items():
        _check_cluster(name, data, file)
        if settings.name in data.hosts:
            _check_ports(name, data, taken, file)
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
    key = f"clusters.{name}"
    if not _NAME.fullmatch(name):
        raise InventoryError(
            f"{key} is not a name for a cluster",
            where=file,
            allowed="at most 31 lower-case letters, digits and '-'",
        )
    if data.topology not in TOPOLOGIES:
        raise InventoryError(
            f"{key}.topology is not known",
            where=file,
            found=repr(data.topology),
            allowed=", ".join(TOPOLOGIES),
        )
    twice = sorted({host for host in data.hosts if data.hosts.count(host) > 1})
    if twice:
        raise InventoryError(f"{key}.hosts names a host twice", where=file, found=", ".join(twice))
    least = _LEAST[data.topology]
    if len(data.hosts) < least or (data.topology == "pair" and len(data.hosts) > 2):
        raise InventoryError(
            f"{key}.hosts is no {data.topology}",
            where=file,
            found=f"{len(data.hosts)} hosts",
            allowed="2 in a pair, 2 or more at a switch, 3 or more in a ring",
        )


def _check_ports(name: str, data: ClusterData, taken: dict[int, str], file: str) -> None:
    """`taken` is added to: two clusters of one host may be up at the same time."""
    for key, port in (("port", data.port), ("master_port", data.master_port)):
        where = f"clusters.{name}.{key}"
        if not 1024 <= port <= 65535:
            raise InventoryError(
                f"{where} is not a port for it",
                where=file,
                found=str(port),
                allowed="1024 to 65535",
            )
        if port in taken:
            raise InventoryError(
                f"{where}: port {port} is used twice",
                where=file,
                found=f"also by {taken[port]}",
                remedy=f"Set {where} to a free port.",
            )
        taken[port] = where


def _check_fabric(fabric: Fabric, file: str) -> None:
    for name in (*fabric.interfaces, *fabric.rdma, *filter(None, [fabric.socket])):
        if not _INTERFACE.fullmatch(name):
            raise InventoryError(
                "fabric names something that is no network interface", where=file, found=repr(name)
            )
    for name in fabric.interfaces:
        if name == "lo" or name.startswith(_NOT_OURS):
            raise InventoryError(
                f"fabric.interfaces.{name} is no interface of the fast link",
                where=file,
                found="loopback, or a network of Docker's or of a virtual machine's",
                allowed="a ConnectX-7 port, for example enp1s0f0np0",
            )
    networks: dict[str, str] = {}
    for name, text in fabric.interfaces.items():
        network = _network(name, text, file)
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
        if name not in fabric.interfaces or not _DEVICE.fullmatch(device):
            raise InventoryError(
                f"fabric.rdma.{name} names no RDMA device of an interface",
                where=file,
                found=repr(device),
                allowed="interfaces: " + (", ".join(fabric.interfaces) or "none"),
            )
    if fabric.mtu not in _MTU:
        raise InventoryError(
            "fabric.mtu is not a size for a frame",
            where=file,
            found=str(fabric.mtu),
            allowed=f"{_MTU.start} to {_MTU.stop - 1}; 9000 between Sparks",
        )
    if fabric.netplan and not fabric.interfaces:
        raise InventoryError(
            "fabric.netplan is on and fabric.interfaces is empty",
            where=file,
            remedy="List the interfaces with their addresses.",
        )


def _network(name: str, text: str, file: str) -> str:
    try:
        found = ipaddress.ip_interface(text)
    except ValueError:
        found = None
    usable = found is not None and not (
        found.ip.is_loopback or found.ip.is_unspecified or found.ip.is_multicast
    )
    # A network of all addresses would take the host's other traffic too.
    whole = found is not None and found.network.prefixlen >= 8 and found.network.num_addresses > 1
    if found is None or "/" not in text or not usable or not whole:
        raise InventoryError(
            f"fabric.interfaces.{name} is not an address with the length of its network",
            where=file,
            found=repr(text)[:60],
            allowed='"10.77.0.11/24"',
        )
    return str(found.network)
