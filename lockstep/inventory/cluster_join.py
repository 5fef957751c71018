"""Joins the data of all hosts of an inventory, where these name each other, and checks it."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lockstep.core.errors import InventoryError
from lockstep.inventory.authority import authority
from lockstep.inventory.backup import Saving, partners
from lockstep.inventory.cluster import ClusterData, Group, Member
from lockstep.inventory.host import HostPlan
from lockstep.inventory.monitoring import Monitored, Ring, rings
from lockstep.inventory.settings import Settings
from lockstep.onhost.gateway.configuration import Peer

#: Warnings and worse; the rest as Ubuntu has it.
CONSOLE_LEVEL = "5 4 1 7"


def joined(plans: Sequence[HostPlan], where: str) -> tuple[HostPlan, ...]:
    """The same plans, each target of a cluster with its host's part of it, each with its peers.

    Args:
        plans: Every host of one inventory; a cluster is not seen whole by fewer.
        where: The inventory, for errors.

    Raises:
        InventoryError: members that do not agree, do not exist, or lack an address.
    """
    known = {plan.name: plan for plan in plans}
    for plan in plans:
        _check_peers(plan, known, where)
    clusters: dict[str, ClusterData] = {}
    for plan in plans:
        for name, data in plan.settings.clusters.items():
            if clusters.setdefault(name, data) != data:
                raise InventoryError(
                    f"clusters.{name} must be the same on all hosts",
                    where=where,
                    found=f"{data} on {plan.name}",
                    remedy="Put it into group data, or into one variable of the inventory.",
                )
    for name, data in clusters.items():
        _check_members(name, data, known, where)
        _check_targets(name, data, known, where)
        _check_boot(name, data, known, where)
        _check_rollout(name, data, known, where)
        _check_networks(name, data, [known[host] for host in data.hosts], where)
    gateways = tuple(plan.name for plan in plans if {*plan.settings.gateway.peers} - {plan.name})
    ring = rings(
        [
            Monitored(plan.name, plan.settings.fabric_address, plan.settings.monitoring)
            for plan in plans
        ]
    )
    saved = partners(
        [Saving(plan.name, plan.settings.fabric_address, plan.settings.backup) for plan in plans],
        where,
    )
    own = [(plan.name, plan.names) for plan in plans if plan.settings.gateway.tls == "own"]
    return tuple(
        replace(
            _with_groups(plan, clusters, known),
            gateways=gateways if plan.name in gateways else (),
            authority=authority(own) if plan.settings.gateway.tls == "own" else None,
            ring=ring[plan.name],
            backups=saved[plan.name],
            settings=_with_console_level(plan.settings, ring[plan.name]),
        )
        for plan in plans
    )


def _check_peers(plan: HostPlan, known: dict[str, HostPlan], where: str) -> None:
    """Gateways speak to each other at `fabric_address`, so both ends need one."""
    peers = [name for name in plan.settings.gateway.peers if name != plan.name]
    strangers = [name for name in peers if name not in known]
    if strangers:
        raise InventoryError(
            f"gateway.peers of {plan.name} names hosts that the inventory does not have",
            where=where,
            found=", ".join(strangers),
            allowed=", ".join(name for name in known if name != plan.name),
            remedy="Name them as the inventory does.",
        )
    for name in (plan.name, *peers) if peers else ():
        if known[name].settings.fabric_address is None:
            raise InventoryError(
                f"{name} has no fabric_address, at which the gateways of peers speak to each other",
                where=where,
                found=f"gateway.peers of {plan.name}: {', '.join(peers)}",
                remedy="Give each of them its own address on the link between the Sparks.",
            )
    for name in peers:
        if plan.name not in known[name].settings.gateway.peers:
            raise InventoryError(
                f"gateway.peers of {plan.name} names {name}, whose own do not name {plan.name}",
                where=where,
                remedy="Name each host in the gateway.peers of the other.",
            )


def _with_console_level(settings: Settings, ring: Ring) -> Settings:
    """netconsole gets what the console gets, which on Ubuntu is errors and worse alone."""
    if ring.recorder is None or ring.recorder.console is None:
        return settings
    return replace(settings, sysctls={"kernel.printk": CONSOLE_LEVEL, **settings.sysctls})


def _with_groups(
    plan: HostPlan, clusters: dict[str, ClusterData], known: dict[str, HostPlan]
) -> HostPlan:
    groups = {
        name: _group(name, data, plan, known)
        for name, data in clusters.items()
        if plan.name in data.hosts
    }
    targets = (
        replace(target, group=groups[target.data.cluster]) if target.data.cluster else target
        for target in plan.targets
    )
    return replace(plan, targets=tuple(targets), peers=tuple(_peers(plan, known)))


def _peers(plan: HostPlan, known: dict[str, HostPlan]) -> Iterator[Peer]:
    for name in plan.settings.gateway.peers:
        settings = known[name].settings
        # Group data names all of them, the host itself too.
        if name != plan.name:
            yield Peer(name, str(settings.fabric_address), settings.gateway.port)


def _group(name: str, data: ClusterData, plan: HostPlan, known: dict[str, HostPlan]) -> Group:
    settings = plan.settings
    interface = settings.fabric.socket_of(settings.fabric_address)
    assert interface is not None
    return Group(
        name=name,
        rank=data.hosts.index(plan.name),
        members=tuple(_member(known[host]) for host in data.hosts),
        data=data,
        interface=interface,
        devices=tuple(settings.fabric.devices.values()),
    )


def _member(plan: HostPlan) -> Member:
    address = str(plan.settings.fabric_address)
    every = (str(found.ip) for found in plan.settings.fabric.addresses.values())
    return Member(plan.name, address, tuple(dict.fromkeys((address, *every))))


def _check_members(name: str, data: ClusterData, known: dict[str, HostPlan], where: str) -> None:
    strangers = [host for host in data.hosts if host not in known]
    if strangers:
        raise InventoryError(
            f"clusters.{name}.hosts names hosts that the inventory does not have",
            where=where,
            found=", ".join(strangers),
            allowed=", ".join(known),
            remedy="Name them as the inventory does.",
        )
    addresses: dict[str, str] = {}
    for host in data.hosts:
        settings = known[host].settings
        address = settings.fabric_address
        if name not in settings.clusters:
            raise InventoryError(
                f"clusters.{name} is missing in the data of its member {host}",
                where=where,
                remedy="Give every member the same clusters.",
            )
        _check_address(host, address, where)
        assert address is not None
        if address in addresses:
            raise InventoryError(
                f"two members of clusters.{name} have one fabric_address",
                where=where,
                found=f"{address} on {addresses[address]} and {host}",
            )
        addresses[address] = host
        if settings.fabric.socket_of(address) is None:
            raise InventoryError(
                f"the network interface of {host}'s fabric_address is not known",
                where=where,
                found=f"{address}; fabric.interfaces: "
                + (", ".join(settings.fabric.interfaces) or "none"),
                remedy="List the interface with this address in fabric.interfaces, or name it "
                "in fabric.socket.",
            )


def _check_address(host: str, address: str | None, where: str) -> None:
    try:
        ipaddress.ip_address(address or "")
    except ValueError:
        raise InventoryError(
            f"{host} is a member of a cluster and needs a fabric_address that is an IP address",
            where=where,
            found=repr(address),
            remedy="Give each member its own address on the link between the Sparks.",
        ) from None


def _check_targets(name: str, data: ClusterData, known: dict[str, HostPlan], where: str) -> None:
    bound = {
        host: {
            target: found
            for target, found in known[host].settings.targets.items()
            if found.cluster == name
        }
        for host in data.hosts
    }
    first = bound[data.hosts[0]]
    for host in data.hosts[1:]:
        for target in {**first, **bound[host]}:
            if first.get(target) != bound[host].get(target):
                raise InventoryError(
                    f"targets.{target} of cluster {name} must be the same on all its members",
                    where=where,
                    found=f"another one, or none, on {data.hosts[0]} and {host}",
                    remedy="Bind it once in a variable of the inventory, and use that for each.",
                )


def _check_boot(name: str, data: ClusterData, known: dict[str, HostPlan], where: str) -> None:
    """What one member makes hot after a boot with all of them, none may contradict."""
    asked = {host: known[host].settings.boot for host in data.hosts}
    groups = {
        form
        for target in known[data.hosts[0]].targets
        if target.data.cluster == name
        for form, _, _ in target.forms
    }
    if groups & set(asked.values()) and len(set(asked.values())) > 1:
        raise InventoryError(
            f"boot must be the same on all members of cluster {name}, whose target it names",
            where=where,
            found=", ".join(f"{boot!r} on {host}" for host, boot in asked.items()),
            remedy="Put it into group data, or into one variable of the inventory.",
        )


def _check_networks(name: str, data: ClusterData, members: list[HostPlan], where: str) -> None:
    """Which networks the members share must be what the topology says."""
    shared: Counter[str] = Counter()
    for plan in members:
        shared.update({str(found.network) for found in plan.settings.fabric.addresses.values()})
    if not shared:
        return
    expected = 2 if data.topology == "ring" else len(members)
    wrong = sorted(network for network, count in shared.items() if count != expected)
    if wrong:
        rule = (
            "each network is one cable between two neighbours"
            if data.topology == "ring"
            else "every member has an address in each network"
        )
        raise InventoryError(
            f"clusters.{name}: its members' fabric.interfaces do not make a {data.topology}",
            where=where,
            found=", ".join(
                f"{network} on {shared[network]} of {len(members)}" for network in wrong
            ),
            allowed=rule,
            remedy="Correct the addresses or their prefix lengths, or the topology.",
        )


def _check_rollout(name: str, data: ClusterData, known: dict[str, HostPlan], where: str) -> None:
    """A cluster's model returns on all members, by a way of its own."""
    found = [host for host in data.hosts if known[host].settings.rollout == "all"]
    if found:
        raise InventoryError(
            f'rollout "all" does not go with cluster {name}',
            where=where,
            found=f"rollout is 'all' on {', '.join(found)}",
            remedy="Leave rollout out: a cluster's model returns on all members anyway.",
        )
