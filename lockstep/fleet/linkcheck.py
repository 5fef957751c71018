"""Judges the answers of the reader `link`: the fast link of a cluster against the inventory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.inventory.cluster import HIDDEN, SHOWN, Group, is_connectx
from lockstep.inventory.host import HostPlan

# Where an interface is none of the fast link's, frames are as everywhere.
PLAIN_MTU = 1500


@dataclass(frozen=True)
class Told:
    """One cluster: what was seen of each member, and what of it is wrong.

    Attributes:
        name: The cluster.
        lines: Member → what was found of it.
        wrong: Lines that name a member and the remedy.
        silent: Member → why it could not be asked.
        proof: What the answers prove of the way that the ranks talk.
    """

    name: str
    lines: Mapping[str, Sequence[str]]
    wrong: Sequence[str] = field(default=())
    silent: Mapping[str, str] = field(default_factory=dict)
    proof: str = ""


def question(plan: HostPlan, plans: Mapping[str, HostPlan], group: Group) -> dict[str, Any]:
    """What to ask one member, which sees its cluster as `group`."""
    fabric = plan.settings.fabric
    mine = {found.network: name for name, found in fabric.addresses.items()}
    peers: dict[str, tuple[str | None, int]] = {}
    for rank, member in enumerate(group.members):
        if rank == group.rank:
            continue
        peers[member.address] = (None, min(PLAIN_MTU, fabric.mtu))
        for found in plans[member.name].settings.fabric.addresses.values():
            # In a ring only neighbours share a network.
            if found.network in mine:
                peers[str(found.ip)] = (mine[found.network], fabric.mtu)
    return {
        "interfaces": list(dict.fromkeys((*fabric.interfaces, group.interface))),
        "peers": peers,
        "units": [
            target.unit
            for target in plan.targets
            if target.group is not None and target.group.name == group.name
        ],
    }


def judged(group: Group, plans: Mapping[str, HostPlan], answers: Mapping[str, Any]) -> Told:
    """What the members' answers say of one cluster; text is why a member could not be asked."""
    names = [member.name for member in group.members]
    silent = {name: answers[name] for name in names if isinstance(answers[name], str)}
    said = {name: answers[name] for name in names if name not in silent}
    owners = {address: member.name for member in group.members for address in member.addresses}
    wrong = [
        f"{name}: {line}"
        for name, answer in said.items()
        for line in (
            *_links(plans[name], answer),
            *_peers(answer, owners),
            *_nccl(plans[name], answer),
        )
    ]
    speeds = {
        found["speed"] for answer in said.values() for found in answer["links"].values() if found
    }
    if len(speeds - {None}) > 1:
        shown = ", ".join(f"{speed / 1000:g}" for speed in sorted(speeds - {None}))
        wrong.append(f"links of different speeds: {shown} Gbit/s. Remedy: look at the cables.")
    lines = {name: list(_lines(answer, owners)) for name, answer in said.items()}
    return Told(group.name, lines, tuple(wrong), silent, _proof(said))


def _links(plan: HostPlan, answer: Mapping[str, Any]) -> Iterator[str]:
    fabric = plan.settings.fabric
    for name, link in answer["links"].items():
        if link is None and is_connectx(name):
            yield f"there is no interface {name}: {HIDDEN}. Remedy: {SHOWN}."
            continue
        if link is None:
            yield f"there is no interface {name}. Remedy: correct the inventory's fabric."
            continue
        if not link["carrier"]:
            yield f"{name} has no link. Remedy: look at the cable."
        if name in fabric.interfaces and link["mtu"] != fabric.mtu:
            yield (
                f"{name} has MTU {link['mtu']} instead of {fabric.mtu}. Remedy: deploy again, or "
                "set it where its addresses are set."
            )
        wanted, have = fabric.devices.get(name), link["rdma"]
        if wanted and (have is None or have["device"] != wanted):
            found = have["device"] if have else "none"
            yield (
                f"{name} is to have the RDMA device {wanted}; found {found}. Remedy: "
                "correct fabric.rdma, or look at the driver."
            )
        elif wanted and have["state"] != "ACTIVE":
            yield f"the RDMA device {wanted} of {name} is {have['state'] or 'in no state'}."


def _peers(answer: Mapping[str, Any], owners: Mapping[str, str]) -> Iterator[str]:
    for address, fault in answer["peers"].items():
        if fault:
            yield (
                f"no whole frame reaches {owners[address]} at {address} and comes back: {fault}. "
                "Remedy: the same MTU everywhere on the way, and the right cable."
            )


def _nccl(plan: HostPlan, answer: Mapping[str, Any]) -> Iterator[str]:
    network = answer["nccl"]["network"]
    if network not in (None, "IB") and plan.settings.fabric.devices:
        yield (
            f"NCCL chose {network} and not IB for {answer['nccl']['unit']}. Remedy: "
            "`journalctl -u` of that unit shows why, in the lines with NCCL."
        )


def _lines(answer: Mapping[str, Any], owners: Mapping[str, str]) -> Iterator[str]:
    for name, link in answer["links"].items():
        if link:
            speed = f"{link['speed'] / 1000:g} Gbit/s" if link["speed"] else "of unknown speed"
            rdma = f"RDMA {link['rdma']['device']}" if link["rdma"] else "no RDMA"
            state = "up" if link["carrier"] else "down"
            yield f"{name}: {state}, MTU {link['mtu']}, {speed}, {rdma}"
    for address, fault in answer["peers"].items():
        if not fault:
            yield f"whole frames reach {owners[address]} at {address}"
    nccl = answer["nccl"]
    if nccl["network"]:
        yield f"NCCL chose {nccl['network']} for {nccl['unit']}"
    elif nccl["unit"]:
        yield f"NCCL says nothing of its network in the log of {nccl['unit']}"
    else:
        yield "no model of the cluster has run since the last boot"


def _proof(said: Mapping[str, Any]) -> str:
    networks = {answer["nccl"]["network"] for answer in said.values()}
    if said and networks == {"IB"}:
        return "NCCL uses RDMA on every member."
    if not any(answer["rdma"] for answer in said.values()):
        return "This proved TCP only: no member that answered has an RDMA device."
    return (
        "This proved TCP only: that the ranks use RDMA is proved when a model of the cluster has "
        "started, by what NCCL writes into its log."
    )
