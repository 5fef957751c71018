"""Clusters: hosts that serve one model together, in inventory data and as a host sees them.

`ClusterData` and `Fabric` are written in an inventory. `ClusterMembers` is one member's view of its
cluster once the data of all members is read (`lockstep/inventory/cluster_join.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import Annotated, Literal

from lockstep.inventory import values
from lockstep.onhost.core.schema import Rule
from lockstep.onhost.engines import Engine

Topology = Literal["pair", "switch", "ring"]
# DGX OS on a Spark: enp1s0f0np0 is rocep1s0f0 to RDMA, its port's other interface enP2p1s0f0np0
# roceP2p1s0f0 (facts of the field, 2026-11).
_CONNECTX = re.compile(r"en([pP].*)np\d+")
# Package dgx-spark-mlnx-hotplug, which an update of 2026-02 brings (facts of the field, 2026-11).
HIDDEN = "DGX OS hides a ConnectX port while its cable is out or the Spark at its other end is off"
SHOWN = (
    "plug the cable in; `sudo rm /etc/nvidia/cx7-hotplug-enabled` and a reboot keep the port "
    "without one"
)


@dataclass(frozen=True)
class ClusterData:
    """Hosts that serve one model together; the same on every member.

    Attributes:
        hosts: Members as the inventory names them, in rank order; the first one answers.
        port: Port at `fabric_address` where the members' agents talk.
        master_port: Port at rank 0's `fabric_address` where the engine's ranks meet.
        topology: "pair" (one cable), "switch", or "ring" (a cable to the members before and after).
    """

    hosts: Annotated[
        tuple[str, ...], Rule("names a host twice", lambda hosts: len(set(hosts)) == len(hosts))
    ]
    port: values.Port = 7079
    master_port: values.Port = 29501
    topology: Topology = "pair"


@dataclass(frozen=True)
class Fabric:
    """The fast network of one host.

    Attributes:
        interfaces: Network interface → its address with prefix length ("10.77.0.11/24"). Both
            interfaces of a ConnectX-7 port, each in a network of its own.
        rdma: Interface → RDMA device, where DGX OS would name it otherwise; "" for none.
        socket: Interface that has `fabric_address`; None: the one of `interfaces` that has it.
        mtu: Bytes of one frame's payload.
        netplan: Whether the deploy writes the addresses; False: the host has them already.
    """

    interfaces: Mapping[values.FabricInterface, values.WithNetwork] = field(default_factory=dict)
    rdma: Mapping[values.Interface, values.RdmaDevice] = field(default_factory=dict)
    socket: values.Interface | None = None
    mtu: values.Mtu = 9000
    netplan: bool = False

    @cached_property
    def addresses(self) -> dict[str, IPv4Interface | IPv6Interface]:
        """Each interface → its address and network; ValueError for text that is no address."""
        return {name: ip_interface(text) for name, text in self.interfaces.items()}

    @property
    def devices(self) -> dict[str, str]:
        """Each interface → its RDMA device; interfaces without one are left out."""
        device_names = {name: _rdma_name(name) for name in self.interfaces} | dict(self.rdma)
        return {name: device for name, device in device_names.items() if device}

    def socket_of(self, address: str | None) -> str | None:
        """Return the interface that has an address of this host; None where the data has none."""
        if self.socket is not None:
            return self.socket
        matching = (
            name for name, interface in self.addresses.items() if str(interface.ip) == address
        )
        return next(matching, None)


def is_connectx(interface: str) -> bool:
    """Tell whether an interface is named like a ConnectX-7 port, which a loose cable hides."""
    return _CONNECTX.fullmatch(interface) is not None


def _rdma_name(interface: str) -> str:
    match = _CONNECTX.fullmatch(interface)
    return f"roce{match[1]}" if match else ""


@dataclass(frozen=True)
class Member:
    """One host of a cluster: its name in the inventory, and every address of its fabric."""

    name: str
    address: str
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class ClusterMembers:
    """A cluster as one of its members sees it.

    Attributes:
        name: Its name in the inventory.
        rank: This host's place in it.
        members: All of them, in rank order.
        data: Its data in the inventory.
        interface: This host's network interface that has its fabric address.
        devices: This host's RDMA devices, both interfaces of each cabled port; () without RDMA.
    """

    name: str
    rank: int
    members: tuple[Member, ...]
    data: ClusterData
    interface: str
    devices: tuple[str, ...]

    @property
    def address(self) -> str:
        """The fabric address of this host."""
        return self.members[self.rank].address

    @property
    def master(self) -> str:
        """The fabric address of rank 0, where the ranks meet."""
        return self.members[0].address

    @property
    def nameless(self) -> ClusterMembers:
        """The cluster as rank 0 sees it, at links without names: equal for all members."""
        return replace(self, rank=0, interface="", devices=("",) if self.devices else ())

    @property
    def peer_addresses(self) -> tuple[str, ...]:
        """Every address of the other members' fabric."""
        return tuple(
            address
            for rank, member in enumerate(self.members)
            if rank != self.rank
            for address in member.addresses
        )

    def arguments(self, engine: Engine, *, data_parallel: int = 1) -> dict[str, object]:
        """Return the recipe keys for this rank of the group, as `serve_command` takes them.

        The group holds ``data_parallel`` copies of the model, one per member. With 1, its members
        split one copy.
        """
        return engine.rank_recipe_keys(
            rank=self.rank,
            size=len(self.members),
            master=self.master,
            port=self.data.master_port,
            copies=data_parallel,
        )

    def environment(self, engine: Engine) -> dict[str, str]:
        """Return the variables of this rank, which say over which networks the ranks talk.

        The GID index is left to the driver: a pinned one breaks when addresses change (facts of the
        field, 2026-11).
        """
        variables = {
            "GLOO_SOCKET_IFNAME": self.interface,
            "NCCL_SOCKET_IFNAME": self.interface,
            # The log then has NCCL's choice, which `lockstep cluster check` reads.
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET",
            # NCCL writes to C's stdout, which keeps its lines until the rank ends. This takes away
            # Python's buffer and C's.
            "PYTHONUNBUFFERED": "1",
        }
        if engine.address_variable:
            variables[engine.address_variable] = self.address
        if self.devices:
            variables |= {"NCCL_NET": "IB", "NCCL_IB_HCA": ",".join(self.devices)}
        if self.devices and self.data.topology == "ring" and len(self.members) >= 4:
            variables |= _RING
        return variables


# Needed by a ring of four and more: each link is a network of its own, and only adjacent members
# reach each other (facts of the field, 2026-11).
_RING = {
    "NCCL_ALGO": "Ring",
    "NCCL_NET_PLUGIN": "none",
    "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
    "NCCL_IB_MERGE_NICS": "0",
}
