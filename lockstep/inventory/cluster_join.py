"""Joins the data of all hosts of an inventory, where these name each other, and checks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from lockstep.core.errors import LockstepError, Unread, gather_faults, raise_all
from lockstep.inventory.cluster import ClusterData, Group, Member
from lockstep.inventory.host import HostPlan, authority
from lockstep.inventory.neighbours import Ring, no_twin, partners, rings
from lockstep.inventory.refusals import Refusals, refuse
from lockstep.inventory.settings import Settings, TargetData
from lockstep.inventory.values import is_address
from lockstep.onhost.core.schema import Refusal
from lockstep.onhost.gateway.configuration import Peer

#: Warnings and worse; the rest as Ubuntu has it.
CONSOLE_LEVEL = "5 4 1 7"


def joined(plans: Sequence[HostPlan], where: str) -> tuple[HostPlan, ...]:
    """The same plans, each target of a cluster with its host's part of it, each with its peers.

    ``plans`` are all hosts of the inventory ``where``: a cluster is not seen whole by fewer.

    Raises:
        InventoryError: as `check_agreement` says.
    """
    check_agreement(plans, where)
    known = {plan.name: plan for plan in plans}
    every = [plan.settings for plan in plans]
    clusters = _clusters(known)
    gateways = tuple(plan.name for plan in plans if {*plan.settings.gateway.peers} - {plan.name})
    ring, saved = rings(every), partners(every)
    own = [(plan.name, plan.names) for plan in plans if plan.settings.gateway.tls == "own"]
    return tuple(
        replace(
            _with_groups(plan, clusters, known),
            peers=tuple(_peers(plan, known)),
            gateways=gateways if plan.name in gateways else (),
            authority=authority(own) if plan.settings.gateway.tls == "own" else None,
            ring=ring[plan.name],
            backups=saved[plan.name],
            settings=_with_console_level(plan.settings, ring[plan.name]),
        )
        for plan in plans
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
    known = {plan.name: plan for plan in plans}
    faults: list[LockstepError] = []
    for host, key, found in _contradictions(known):
        with gather_faults(faults):
            refuse(found, (lines or {}).get(host, {}).get(key, where))
    raise_all(faults)


def _contradictions(known: Mapping[str, HostPlan]) -> Iterator[tuple[str, str, Refusals]]:
    """Each check, with the host and the key that it is about."""
    every = [plan.settings for plan in known.values()]
    for plan in known.values():
        yield plan.name, "gateway", _of_peers(plan, known)
        yield plan.name, "backup", no_twin(plan.settings, every)
    of_clusters = _clusters(known)
    for plan in known.values():
        yield plan.name, "clusters", _of_sameness(plan, of_clusters)
    for name, data in of_clusters.items():
        first = next(iter(data.hosts), "")
        strangers = [host for host in data.hosts if host not in known]
        if strangers:
            yield next(iter(known)), "clusters", _of_strangers(name, strangers, known)
        elif data.hosts:
            members = [known[host] for host in data.hosts]
            yield first, "fabric_address", _of_addresses(name, members)
            yield first, "targets", _of_targets(name, members)
            yield first, "boot", _of_what_starts(name, members)
            yield first, "rollout", _of_rollouts(name, members)
            yield first, "fabric", _of_networks(name, data, members)


def _clusters(known: Mapping[str, HostPlan]) -> dict[str, ClusterData]:
    """Name → cluster, as the first host that has it says."""
    found: dict[str, ClusterData] = {}
    for plan in known.values():
        with suppress(Unread):
            for name, data in plan.settings.clusters.items():
                found.setdefault(name, data)
    return found


def _of_sameness(plan: HostPlan, clusters: Mapping[str, ClusterData]) -> Refusals:
    for name, data in plan.settings.clusters.items():
        if data != clusters[name]:
            yield Refusal(
                f"clusters.{name} must be the same on all hosts",
                found=f"{data} on {plan.name}",
                remedy="Put it into group data, or into one variable of the inventory.",
            )


def _of_strangers(name: str, strangers: Sequence[str], known: Collection[str]) -> Refusals:
    yield Refusal(
        f"clusters.{name}.hosts names hosts that the inventory does not have",
        found=", ".join(strangers),
        allowed=", ".join(known),
        remedy="Name them as the inventory does.",
    )


def _of_peers(plan: HostPlan, known: Mapping[str, HostPlan]) -> Refusals:
    """Gateways speak to each other at `fabric_address`, so both ends need one."""
    peers = [name for name in plan.settings.gateway.peers if name != plan.name]
    strangers = [name for name in peers if name not in known]
    if strangers:
        yield Refusal(
            f"gateway.peers of {plan.name} names hosts that the inventory does not have",
            found=", ".join(strangers),
            allowed=", ".join(name for name in known if name != plan.name),
            remedy="Name them as the inventory does.",
        )
        return
    for name in (plan.name, *peers) if peers else ():
        if known[name].settings.fabric_address is None:
            yield Refusal(
                f"{name} has no fabric_address, at which the gateways of peers speak to each other",
                found=f"gateway.peers of {plan.name}: {', '.join(peers)}",
                remedy="Give each of them its own address on the link between the Sparks.",
            )
    for name in peers:
        if plan.name not in known[name].settings.gateway.peers:
            yield Refusal(
                f"gateway.peers of {plan.name} names {name}, whose own do not name {plan.name}",
                remedy="Name each host in the gateway.peers of the other.",
            )


def _with_console_level(settings: Settings, ring: Ring) -> Settings:
    """netconsole gets what the console gets, which on Ubuntu is errors and worse alone."""
    if ring.recorder is None or ring.recorder.console is None:
        return settings
    return replace(settings, sysctls={"kernel.printk": CONSOLE_LEVEL, **settings.sysctls})


def _with_groups(
    plan: HostPlan, clusters: Mapping[str, ClusterData], known: Mapping[str, HostPlan]
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
    return replace(plan, targets=tuple(targets))


def _peers(plan: HostPlan, known: Mapping[str, HostPlan]) -> Iterator[Peer]:
    for name in plan.settings.gateway.peers:
        settings = known[name].settings
        # Group data names all of them, the host itself too.
        if name != plan.name:
            yield Peer(name, str(settings.fabric_address), settings.gateway.port)


def _group(name: str, data: ClusterData, plan: HostPlan, known: Mapping[str, HostPlan]) -> Group:
    settings = plan.settings
    interface = settings.fabric.socket_of(settings.fabric_address)
    assert interface is not None
    members = tuple(_member(known[host]) for host in data.hosts)
    devices = tuple(settings.fabric.devices.values())
    return Group(name, data.hosts.index(plan.name), members, data, interface, devices)


def _member(plan: HostPlan) -> Member:
    address = str(plan.settings.fabric_address)
    every = (str(found.ip) for found in plan.settings.fabric.addresses.values())
    return Member(plan.name, address, tuple(dict.fromkeys((address, *every))))


def _of_addresses(name: str, members: Sequence[HostPlan]) -> Refusals:
    addresses: dict[str, str] = {}
    for plan in members:
        settings, address = plan.settings, plan.settings.fabric_address
        if name not in settings.clusters:
            yield Refusal(
                f"clusters.{name} is missing in the data of its member {plan.name}",
                remedy="Give every member the same clusters.",
            )
        if address is None or not is_address(address):
            yield Refusal(
                f"{plan.name} is a member of a cluster and needs a fabric_address that is an IP "
                "address",
                found=repr(address),
                remedy="Give each member its own address on the link between the Sparks.",
            )
            return
        if address in addresses:
            yield Refusal(
                f"two members of clusters.{name} have one fabric_address",
                found=f"{address} on {addresses[address]} and {plan.name}",
            )
        addresses[address] = plan.name
        if settings.fabric.socket_of(address) is None:
            interfaces = ", ".join(settings.fabric.interfaces) or "none"
            yield Refusal(
                f"the network interface of {plan.name}'s fabric_address is not known",
                found=f"{address}; fabric.interfaces: {interfaces}",
                remedy="List the interface with this address in fabric.interfaces, or name it "
                "in fabric.socket.",
            )


def _of_targets(name: str, members: Sequence[HostPlan]) -> Refusals:
    def bound(plan: HostPlan) -> dict[str, TargetData]:
        every = plan.settings.targets.items()
        return {target: data for target, data in every if data.cluster == name}

    first = bound(members[0])
    for plan in members[1:]:
        here = bound(plan)
        for target in {**first, **here}:
            if first.get(target) != here.get(target):
                yield Refusal(
                    f"targets.{target} of cluster {name} must be the same on all its members",
                    found=f"another one, or none, on {members[0].name} and {plan.name}",
                    remedy="Bind it once in a variable of the inventory, and use that for each.",
                )


def _of_what_starts(name: str, members: Sequence[HostPlan]) -> Refusals:
    """A cluster's model becomes hot, and returns after a failed rollout, on all members."""
    asked = {plan.name: plan.settings.boot for plan in members}
    of_cluster = (target for target in members[0].targets if target.data.cluster == name)
    forms = {form for target in of_cluster for form, _, _ in target.forms}
    if forms & set(asked.values()) and len(set(asked.values())) > 1:
        yield Refusal(
            f"boot must be the same on all members of cluster {name}, whose target it names",
            found=", ".join(f"{boot!r} on {host}" for host, boot in asked.items()),
            remedy="Put it into group data, or into one variable of the inventory.",
        )


def _of_rollouts(name: str, members: Sequence[HostPlan]) -> Refusals:
    found = [plan.name for plan in members if plan.settings.rollout == "all"]
    if found:
        yield Refusal(
            f'rollout "all" does not go with cluster {name}',
            found=f"rollout is 'all' on {', '.join(found)}",
            remedy="Leave rollout out: a cluster's model returns on all members anyway.",
        )


def _of_networks(name: str, data: ClusterData, members: Sequence[HostPlan]) -> Refusals:
    """Which networks the members share must be what the topology says."""
    shared: Counter[str] = Counter()
    for plan in members:
        shared.update({str(found.network) for found in plan.settings.fabric.addresses.values()})
    ring = data.topology == "ring"
    expected = 2 if ring else len(members)
    wrong = sorted(network for network, count in shared.items() if count != expected)
    if wrong:
        yield Refusal(
            f"clusters.{name}: its members' fabric.interfaces do not make a {data.topology}",
            found=", ".join(
                f"{network} on {shared[network]} of {len(members)}" for network in wrong
            ),
            allowed="each network is one cable between two neighbours"
            if ring
            else "every member has an address in each network",
            remedy="Correct the addresses or their prefix lengths, or the topology.",
        )
