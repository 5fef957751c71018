"""Clusters: hosts that serve one model together, as inventory data says and as a host sees them.

`ClusterData` and `Fabric` are what is written in an inventory. `Group` is what one member knows of
its cluster once the data of all members is read (`lockstep/inventory/cluster_join.py`).
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
# DGX OS on a Spark: enp1s0f0np0 is rocep1s0f0 to RDMA, its twin enP2p1s0f0np0 roceP2p1s0f0
# (facts of the field, 2026-11).
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
        topology: "pair" (one cable), "switch", or "ring" (a cable to each neighbour).
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
            twins of a ConnectX-7 port, each in a network of its own.
        rdma: Interface → RDMA device, where it is not as DGX OS names it; "" for none.
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
        """Interface → its address and network; ValueError where one is no such thing."""
        return {name: ip_interface(text) for name, text in self.interfaces.items()}

    @property
    def devices(self) -> dict[str, str]:
        """Interface → its RDMA device; those without one are left out."""
        named = {name: _rdma_name(name) for name in self.interfaces} | dict(self.rdma)
        return {name: device for name, device in named.items() if device}

    def socket_of(self, address: str | None) -> str | None:
        """The interface that has an address of this host; None where the data does not say."""
        if self.socket is not None:
            return self.socket
        named = (name for name, found in self.addresses.items() if str(found.ip) == address)
        return next(named, None)


def is_connectx(interface: str) -> bool:
    """Whether this is how DGX OS names a ConnectX-7 port, which a cable that is out takes away."""
    return _CONNECTX.fullmatch(interface) is not None


def _rdma_name(interface: str) -> str:
    found = _CONNECTX.fullmatch(interface)
    return f"roce{found[1]}" if found else ""


@dataclass(frozen=True)
class Member:
    """One host of a cluster: its name in the inventory, and every address of its fabric."""

    name: str
    address: str
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """A cluster as one of its members sees it.

    Attributes:
        name: Its name in the inventory.
        rank: This host's place in it.
        members: All of them, in rank order.
        data: What the inventory says about it.
        interface: This host's network interface that has its fabric address.
        devices: This host's RDMA devices, both twins of each cabled port; () without RDMA.
    """

    name: str
    rank: int
    members: tuple[Member, ...]
    data: ClusterData
    interface: str
    devices: tuple[str, ...]

    @property
    def address(self) -> str:
        """This host's fabric address."""
        return self.members[self.rank].address

    @property
    def master(self) -> str:
        """Rank 0's fabric address, where the ranks meet."""
        return self.members[0].address

    @property
    def nameless(self) -> Group:
        """Rank 0 at links without names: what all members have in common."""
        return replace(self, rank=0, interface="", devices=("",) if self.devices else ())

    @property
    def others(self) -> tuple[str, ...]:
        """Every address of the other members' fabric."""
        return tuple(
            address
            for rank, member in enumerate(self.members)
            if rank != self.rank
            for address in member.addresses
        )

    def arguments(self, engine: Engine, *, data_parallel: int = 1) -> dict[str, object]:
        """Recipe keys that make an engine this rank of the group, as `serve_command` takes them.

        The group holds ``data_parallel`` copies of the model, one per member; with 1 its members
        split one copy.
        """
        return engine.rank_arguments(
            rank=self.rank,
            size=len(self.members),
            master=self.master,
            port=self.data.master_port,
            copies=data_parallel,
        )

    def environment(self, engine: Engine) -> dict[str, str]:
        """Variables of this rank: which of this host's networks the ranks talk over.

        The GID index is left to the driver: a pinned one breaks when addresses change (facts of
        the field, 2026-11).
        """
        found = {
            "GLOO_SOCKET_IFNAME": self.interface,
            "NCCL_SOCKET_IFNAME": self.interface,
            # What it chose stands in the log then: `lockstep cluster check` reads it.
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET",
        }
        if engine.address_variable:
            found[engine.address_variable] = self.address
        if self.devices:
            found |= {"NCCL_NET": "IB", "NCCL_IB_HCA": ",".join(self.devices)}
        if self.devices and self.data.topology == "ring" and len(self.members) >= 4:
            found |= _RING
        return found


# What a ring of four and more needs: each link is a network of its own, and only neighbours reach
# each other (facts of the field, 2026-11).
_RING = {
    "NCCL_ALGO": "Ring",
    "NCCL_NET_PLUGIN": "none",
    "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
    "NCCL_IB_MERGE_NICS": "0",
}
