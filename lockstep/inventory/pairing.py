"""The pairs of Sparks of an inventory: for recording, and for keeping backups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lockstep.inventory.backup import PEER
from lockstep.inventory.refusals import Refusals
from lockstep.inventory.settings import Settings
from lockstep.inventory.values import is_address
from lockstep.onhost.core.schema import SchemaFault


@dataclass(frozen=True)
class LinkedPeer:
    """A peer in the inventory.

    Attributes:
        name: Its name in the inventory.
        address: Its address on the fast link.
        port: Port of its exporter, or the one for backups.
        console: UDP port of the recording host for the kernel's messages of this pair. None where
            none are sent.
    """

    name: str
    address: str
    port: int
    console: int | None = None


@dataclass(frozen=True)
class Ring:
    """The place of one host among the monitored hosts of an inventory.

    Attributes:
        recorder: Peer that records this host; None where no other one can.
        recorded_hosts: Peers that this host records.
        readers: Peers that reach this host's Prometheus, where that listens on the fast link.
    """

    recorder: LinkedPeer | None = None
    recorded_hosts: tuple[LinkedPeer, ...] = ()
    readers: tuple[LinkedPeer, ...] = ()


@dataclass(frozen=True)
class Partners:
    """The peers of one host for backups.

    Attributes:
        peer: Peer that keeps this host's backups; None: no peer does.
        of: Peer whose backups this host keeps; None: no peer's.
    """

    peer: LinkedPeer | None = None
    of: LinkedPeer | None = None


def rings(hosts: Sequence[Settings]) -> dict[str, Ring]:
    """Return host → its place: each is recorded by the next host that keeps, the last by the first.

    Args:
        hosts: All hosts of one inventory, in its order. A host that is not monitored, or has no IP
            address on the fast link, has no part in the ring.
    """
    settings_by_host = {host.name: host for host in _linked_hosts(hosts) if host.monitoring.enabled}
    keeping = [name for name, host in settings_by_host.items() if host.monitoring.keeps]
    recorder = {
        name: _next_host(name, list(settings_by_host), keeping) for name in settings_by_host
    }
    hosts_by_recorder = {
        name: [of for of, by in recorder.items() if by == name] for name in settings_by_host
    }
    # A datagram does not name its sender to a program that only reads, so each pair has a port.
    console = {
        of: settings_by_host[by].monitoring.netconsole_port + place
        for by, every in hosts_by_recorder.items()
        for place, of in enumerate(every)
        if settings_by_host[of].monitoring.netconsole
    }

    def linked_peer(name: str, of: str = "") -> LinkedPeer:
        host = settings_by_host[name]
        port = host.monitoring.exporter_port
        return LinkedPeer(name, str(host.fabric_address), port, console.get(of))

    all_rings = {host.name: Ring() for host in hosts}
    for name, host in settings_by_host.items():
        by = recorder[name]
        read = host.monitoring.keeps and host.monitoring.bind == "fabric"
        all_rings[name] = Ring(
            recorder=linked_peer(by, name) if by else None,
            recorded_hosts=tuple(
                linked_peer(recorded_name, recorded_name)
                for recorded_name in hosts_by_recorder[name]
            ),
            readers=tuple(
                linked_peer(recorded_name)
                for recorded_name in settings_by_host
                if recorded_name != name
            )
            if read
            else (),
        )
    return all_rings


def no_peer(host: Settings, hosts: Sequence[Settings]) -> Refusals:
    """Refuse backups to a peer where the host has none, or no address on the link to it."""
    if not host.backup.has_peer:
        return
    if not is_address(host.fabric_address):
        yield SchemaFault(
            f'backup.to of {host.name} is "{PEER}", and fabric_address is no IP address',
            found=f"fabric_address {host.fabric_address!r}",
            remedy="Give both Sparks their own address on the link between them.",
        )
    elif not any(is_address(peer.fabric_address) for peer in hosts if peer.name != host.name):
        yield SchemaFault(
            f'backup.to of {host.name} is "{PEER}", and {host.name} has no peer',
            found="no other host with a fabric_address",
            remedy="Add another Spark with its address on the link, or name a folder or an sftp "
            "server.",
        )


def partners(hosts: Sequence[Settings]) -> dict[str, Partners]:
    """Return host → partners: each one's backups go to the next host, the last one's to the first.

    Every host that asks for backups on a peer has one: see `no_peer`.
    """
    linked_hosts = {
        host.name: LinkedPeer(host.name, str(host.fabric_address), host.backup.port)
        for host in _linked_hosts(hosts)
    }
    peers: dict[str, LinkedPeer] = {}
    of: dict[str, LinkedPeer] = {}
    for host in hosts:
        peer = (
            _next_host(host.name, list(linked_hosts), linked_hosts)
            if host.backup.has_peer
            else None
        )
        if peer:
            peers[host.name], of[peer] = linked_hosts[peer], linked_hosts[host.name]
    return {host.name: Partners(peers.get(host.name), of.get(host.name)) for host in hosts}


def _linked_hosts(hosts: Sequence[Settings]) -> list[Settings]:
    """Return the hosts with an address on the fast link."""
    return [host for host in hosts if is_address(host.fabric_address)]


def _next_host(name: str, every: Sequence[str], fit: Collection[str]) -> str | None:
    """Return the next of these hosts that fits; after the last one comes the first."""
    place = every.index(name)
    return next(
        (candidate for candidate in (*every[place + 1 :], *every[:place]) if candidate in fit), None
    )
