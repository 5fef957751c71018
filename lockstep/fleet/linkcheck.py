"""Judgement of the reader `link`: the fast link of a cluster against the inventory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.inventory.cluster import HIDDEN, SHOWN, ClusterMembers, is_connectx
from lockstep.inventory.host import HostPlan

# An interface that is not of the fast link has frames of the usual size.
PLAIN_MTU = 1500


@dataclass(frozen=True)
class LinkReport:
    """The fast link of one cluster: facts and faults of each member.

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


def question(
    plan: HostPlan, plans: Mapping[str, HostPlan], group: ClusterMembers
) -> dict[str, Any]:
    """Return the question for one member, which sees its cluster as `group`."""
    fabric = plan.settings.fabric
    own_networks = {interface.network: name for name, interface in fabric.addresses.items()}
    peers: dict[str, tuple[str | None, int]] = {}
    for rank, member in enumerate(group.members):
        if rank == group.rank:
            continue
        peers[member.address] = (None, min(PLAIN_MTU, fabric.mtu))
        for interface in plans[member.name].settings.fabric.addresses.values():
            # In a ring only adjacent members share a network.
            if interface.network in own_networks:
                peers[str(interface.ip)] = (own_networks[interface.network], fabric.mtu)
    return {
        "interfaces": list(dict.fromkeys((*fabric.interfaces, group.interface))),
        "peers": peers,
        "units": [
            model.unit
            for model in plan.models
            if model.group is not None and model.group.name == group.name
        ],
    }


def judge_links(
    group: ClusterMembers, plans: Mapping[str, HostPlan], answers: Mapping[str, Any]
) -> LinkReport:
    """Judge the members' answers of one cluster; an answer that is text says why there is none."""
    names = [member.name for member in group.members]
    silent = {name: answers[name] for name in names if isinstance(answers[name], str)}
    answering = {name: answers[name] for name in names if name not in silent}
    owners = {address: member.name for member in group.members for address in member.addresses}
    wrong = [
        f"{name}: {line}"
        for name, answer in answering.items()
        for line in (
            *_links(plans[name], answer),
            *_peers(answer, owners),
            *_nccl(plans[name], answer),
        )
    ]
    speeds = {
        link["speed"] for answer in answering.values() for link in answer["links"].values() if link
    }
    if len(speeds - {None}) > 1:
        speeds_text = ", ".join(f"{speed / 1000:g}" for speed in sorted(speeds - {None}))
        wrong.append(
            f"links of different speeds: {speeds_text} Gbit/s. Remedy: look at the cables."
        )
    lines = {name: list(_lines(answer, owners)) for name, answer in answering.items()}
    return LinkReport(group.name, lines, tuple(wrong), silent, _proof(answering))


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
        device, have = fabric.devices.get(name), link["rdma"]
        if device and (have is None or have["device"] != device):
            present_device = have["device"] if have else "none"
            yield (
                f"{name} is to have the RDMA device {device}; found {present_device}. Remedy: "
                "correct fabric.rdma, or look at the driver."
            )
        elif device and have["state"] != "ACTIVE":
            yield f"the RDMA device {device} of {name} is {have['state'] or 'in no state'}."


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


def _proof(answering: Mapping[str, Any]) -> str:
    networks = {answer["nccl"]["network"] for answer in answering.values()}
    if answering and networks == {"IB"}:
        return "NCCL uses RDMA on every member."
    if not any(answer["rdma"] for answer in answering.values()):
        return "This proved TCP only: no member that answered has an RDMA device."
    return (
        "This proved TCP only: that the ranks use RDMA is proved when a model of the cluster has "
        "started, by what NCCL writes into its log."
    )
