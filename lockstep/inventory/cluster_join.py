"""Joins and checks of the data of all hosts of an inventory, where hosts name each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from lockstep.core.errors import LockstepError, Unread, gather_faults, raise_all
from lockstep.inventory.cluster import ClusterData, ClusterMembers, Member
from lockstep.inventory.host import HostPlan, authority
from lockstep.inventory.pairing import Ring, no_peer, partners, rings
from lockstep.inventory.refusals import Refusals, refuse
from lockstep.inventory.settings import ModelData, Settings
from lockstep.inventory.values import is_address
from lockstep.onhost.core.schema import SchemaFault
from lockstep.onhost.gateway.configuration import PeerGateway

#: Console level for warnings and worse; the other values are Ubuntu's.
CONSOLE_LEVEL = "5 4 1 7"


def join_clusters(plans: Sequence[HostPlan], where: str) -> tuple[HostPlan, ...]:
    """Return the plans with each model's part of its cluster and with each host's peers.

    ``plans`` are all hosts of the inventory ``where``: with fewer a cluster is not seen whole.

    Raises:
        InventoryError: as `check_agreement` says.
    """
    check_agreement(plans, where)
    plans_by_name = {plan.name: plan for plan in plans}
    every = [plan.settings for plan in plans]
    clusters = _clusters(plans_by_name)
    plans_with_groups = [_with_groups(plan, clusters, plans_by_name) for plan in plans]
    peers_by_host = {plan.name: tuple(_peers(plan, plans_by_name)) for plan in plans}
    peer_hosts = tuple(
        plan.name for plan in plans_with_groups if plan.groups or peers_by_host[plan.name]
    )
    ring, backup_partners = rings(every), partners(every)
    own = [(plan.name, plan.names) for plan in plans if plan.settings.gateway.tls == "own"]
    return tuple(
        replace(
            plan,
            peer_hosts=peer_hosts if plan.name in peer_hosts else (),
            peers=peers_by_host[plan.name],
            authority=authority(own) if plan.settings.gateway.tls == "own" else None,
            ring=ring[plan.name],
            backups=backup_partners[plan.name],
            settings=_with_console_level(plan.settings, ring[plan.name]),
        )
        for plan in plans_with_groups
    )


def check_agreement(
    plans: Sequence[HostPlan], where: str, lines: Mapping[str, Mapping[str, str]] | None = None
) -> None:
    """Refuse hosts that contradict each other.

    Args:
        plans: All hosts of the inventory.
        where: The inventory, for errors.
        lines: Host → key of its data → the file and line that gives it, for errors.

    Raises:
        InventoryError: hosts that do not agree, do not exist, or lack an address.
    """
    plans_by_name = {plan.name: plan for plan in plans}
    faults: list[LockstepError] = []
    for host, key, refusals in _contradictions(plans_by_name):
        with gather_faults(faults):
            refuse(refusals, (lines or {}).get(host, {}).get(key, where))
    raise_all(faults)


def _contradictions(plans_by_name: Mapping[str, HostPlan]) -> Iterator[tuple[str, str, Refusals]]:
    """Yield each check, with the host and the key that it is about."""
    every = [plan.settings for plan in plans_by_name.values()]
    for plan in plans_by_name.values():
        yield plan.name, "gateway", _of_peers(plan, plans_by_name)
        yield plan.name, "backup", no_peer(plan.settings, every)
    of_clusters = _clusters(plans_by_name)
    for plan in plans_by_name.values():
        yield plan.name, "clusters", _of_sameness(plan, of_clusters)
    for name, data in of_clusters.items():
        first = next(iter(data.hosts), "")
        strangers = [host for host in data.hosts if host not in plans_by_name]
        if strangers:
            yield (
                next(iter(plans_by_name)),
                "clusters",
                _of_strangers(name, strangers, plans_by_name),
            )
        elif data.hosts:
            members = [plans_by_name[host] for host in data.hosts]
            yield first, "fabric_address", _of_addresses(name, members)
            yield first, "models", _of_models(name, members)
            yield first, "boot", _of_what_starts(name, members)
            yield first, "rollout", _of_rollouts(name, members)
            yield first, "fabric", _of_networks(name, data, members)


def _clusters(plans_by_name: Mapping[str, HostPlan]) -> dict[str, ClusterData]:
    """Return name → cluster, from the first host that has it."""
    clusters: dict[str, ClusterData] = {}
    for plan in plans_by_name.values():
        with suppress(Unread):
            for name, data in plan.settings.clusters.items():
                clusters.setdefault(name, data)
    return clusters


def _of_sameness(plan: HostPlan, clusters: Mapping[str, ClusterData]) -> Refusals:
    for name, data in plan.settings.clusters.items():
        if data != clusters[name]:
            yield SchemaFault(
                f"clusters.{name} must be the same on all hosts",
                found=f"{data} on {plan.name}",
                remedy="Put it into group data, or into one variable of the inventory.",
            )


def _of_strangers(name: str, strangers: Sequence[str], host_names: Collection[str]) -> Refusals:
    yield SchemaFault(
        f"clusters.{name}.hosts names hosts that the inventory does not have",
        found=", ".join(strangers),
        allowed=", ".join(host_names),
        remedy="Name them as the inventory does.",
    )


def _of_peers(plan: HostPlan, plans_by_name: Mapping[str, HostPlan]) -> Refusals:
    """Refuse a gateway's peer where an end has no `fabric_address`: they talk there."""
    peers = [name for name in plan.settings.gateway.peers if name != plan.name]
    strangers = [name for name in peers if name not in plans_by_name]
    if strangers:
        yield SchemaFault(
            f"gateway.peers of {plan.name} names hosts that the inventory does not have",
            found=", ".join(strangers),
            allowed=", ".join(name for name in plans_by_name if name != plan.name),
            remedy="Name them as the inventory does.",
        )
        return
    for name in (plan.name, *peers) if peers else ():
        if plans_by_name[name].settings.fabric_address is None:
            yield SchemaFault(
                f"{name} has no fabric_address, at which the gateways of peers speak to each other",
                found=f"gateway.peers of {plan.name}: {', '.join(peers)}",
                remedy="Give each of them its own address on the link between the Sparks.",
            )
    for name in peers:
        if plan.name not in plans_by_name[name].settings.gateway.peers:
            yield SchemaFault(
                f"gateway.peers of {plan.name} names {name}, but gateway.peers of {name} does not "
                f"name {plan.name}",
                remedy="Name each host in the gateway.peers of the other.",
            )


def _with_console_level(settings: Settings, ring: Ring) -> Settings:
    """Return settings that send warnings too to the console.

    netconsole gets what the console gets, and on Ubuntu that is only errors and worse.
    """
    if ring.recorder is None or ring.recorder.console is None:
        return settings
    return replace(settings, sysctls={"kernel.printk": CONSOLE_LEVEL, **settings.sysctls})


def _with_groups(
    plan: HostPlan, clusters: Mapping[str, ClusterData], plans_by_name: Mapping[str, HostPlan]
) -> HostPlan:
    groups = {
        name: _group(name, data, plan, plans_by_name)
        for name, data in clusters.items()
        if plan.name in data.hosts
    }
    models = (
        replace(model, group=groups[model.data.cluster]) if model.data.cluster else model
        for model in plan.models
    )
    return replace(plan, models=tuple(models))


def _peers(plan: HostPlan, plans_by_name: Mapping[str, HostPlan]) -> Iterator[PeerGateway]:
    for name in plan.settings.gateway.peers:
        settings = plans_by_name[name].settings
        # Group data names all hosts, this one too.
        if name != plan.name:
            yield PeerGateway(name, str(settings.fabric_address), settings.gateway.port)


def _group(
    name: str, data: ClusterData, plan: HostPlan, plans_by_name: Mapping[str, HostPlan]
) -> ClusterMembers:
    settings = plan.settings
    interface = settings.fabric.socket_of(settings.fabric_address)
    assert interface is not None
    members = tuple(_member(plans_by_name[host]) for host in data.hosts)
    devices = tuple(settings.fabric.devices.values())
    return ClusterMembers(name, data.hosts.index(plan.name), members, data, interface, devices)


def _member(plan: HostPlan) -> Member:
    address = str(plan.settings.fabric_address)
    every = (str(interface.ip) for interface in plan.settings.fabric.addresses.values())
    return Member(plan.name, address, tuple(dict.fromkeys((address, *every))))


def _of_addresses(name: str, members: Sequence[HostPlan]) -> Refusals:
    addresses: dict[str, str] = {}
    for plan in members:
        settings, address = plan.settings, plan.settings.fabric_address
        if name not in settings.clusters:
            yield SchemaFault(
                f"clusters.{name} is missing in the data of its member {plan.name}",
                remedy="Give every member the same clusters.",
            )
        if address is None or not is_address(address):
            yield SchemaFault(
                f"{plan.name} is a member of a cluster and needs a fabric_address that is an IP "
                "address",
                found=repr(address),
                remedy="Give each member its own address on the link between the Sparks.",
            )
            return
        if address in addresses:
            yield SchemaFault(
                f"two members of clusters.{name} have one fabric_address",
                found=f"{address} on {addresses[address]} and {plan.name}",
            )
        addresses[address] = plan.name
        if settings.fabric.socket_of(address) is None:
            interfaces = ", ".join(settings.fabric.interfaces) or "none"
            yield SchemaFault(
                f"the network interface of {plan.name}'s fabric_address is not known",
                found=f"{address}; fabric.interfaces: {interfaces}",
                remedy="List the interface with this address in fabric.interfaces, or name it "
                "in fabric.socket.",
            )


def _of_models(name: str, members: Sequence[HostPlan]) -> Refusals:
    def cluster_models(plan: HostPlan) -> dict[str, ModelData]:
        every = plan.settings.models.items()
        return {model: data for model, data in every if data.cluster == name}

    first = cluster_models(members[0])
    for plan in members[1:]:
        own_models = cluster_models(plan)
        for model in {**first, **own_models}:
            if first.get(model) != own_models.get(model):
                yield SchemaFault(
                    f"models.{model} of cluster {name} must be the same on all its members",
                    found=f"another one, or none, on {members[0].name} and {plan.name}",
                    remedy="Bind it once in a variable of the inventory, and use that for each.",
                )


def _of_what_starts(name: str, members: Sequence[HostPlan]) -> Refusals:
    """Refuse different `boot` on members: a cluster's model starts and returns on all of them."""
    boot_by_host = {plan.name: plan.settings.boot for plan in members}
    of_cluster = (model for model in members[0].models if model.data.cluster == name)
    forms = {form for model in of_cluster for form, _, _ in model.forms}
    if forms & set(boot_by_host.values()) and len(set(boot_by_host.values())) > 1:
        yield SchemaFault(
            f"boot must be the same on all members of cluster {name}, whose model it names",
            found=", ".join(f"{boot!r} on {host}" for host, boot in boot_by_host.items()),
            remedy="Put it into group data, or into one variable of the inventory.",
        )


def _of_rollouts(name: str, members: Sequence[HostPlan]) -> Refusals:
    host_names = [plan.name for plan in members if plan.settings.rollout == "all"]
    if host_names:
        yield SchemaFault(
            f'rollout "all" does not go with cluster {name}',
            found=f"rollout is 'all' on {', '.join(host_names)}",
            remedy="Leave rollout out: a cluster's model returns on all members anyway.",
        )


def _of_networks(name: str, data: ClusterData, members: Sequence[HostPlan]) -> Refusals:
    """Refuse networks of members that do not make the topology."""
    counter: Counter[str] = Counter()
    for plan in members:
        counter.update(
            {str(interface.network) for interface in plan.settings.fabric.addresses.values()}
        )
    ring = data.topology == "ring"
    expected_count = 2 if ring else len(members)
    wrong = sorted(network for network, count in counter.items() if count != expected_count)
    if wrong:
        yield SchemaFault(
            f"clusters.{name}: its members' fabric.interfaces do not make a {data.topology}",
            found=", ".join(
                f"{network} on {counter[network]} of {len(members)}" for network in wrong
            ),
            allowed="each network is one cable between two adjacent peers"
            if ring
            else "every member has an address in each network",
            remedy="Correct the addresses or their prefix lengths, or the topology.",
        )
