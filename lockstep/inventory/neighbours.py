"""Which Spark of an inventory records which, and which keeps whose backups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lockstep.inventory.backup import TWIN
from lockstep.inventory.refusals import Refusals
from lockstep.inventory.settings import Settings
from lockstep.inventory.values import is_address
from lockstep.onhost.core.schema import Refusal


@dataclass(frozen=True)
class Neighbour:
    """Another Spark of the inventory.

    Attributes:
        name: As the inventory has it.
        address: On the fast link.
        port: Its exporter's, or the one for backups.
        console: Where the kernel's messages go: UDP port of the one that records, for this pair.
            None where none are sent.
    """

    name: str
    address: str
    port: int
    console: int | None = None


@dataclass(frozen=True)
class Ring:
    """One host's place among the monitored hosts of an inventory.

    Attributes:
        recorder: Who records this host; None where no other one can.
        recorded: Whom this host records.
        readers: Who reaches this host's Prometheus, where that listens on the fast link.
    """

    recorder: Neighbour | None = None
    recorded: tuple[Neighbour, ...] = ()
    readers: tuple[Neighbour, ...] = ()


@dataclass(frozen=True)
class Partners:
    """With whom a host has to do for backups.

    Attributes:
        twin: Who keeps this host's; None: no other Spark does.
        of: Whose this host keeps; None: nobody's.
    """

    twin: Neighbour | None = None
    of: Neighbour | None = None


def rings(hosts: Sequence[Settings]) -> dict[str, Ring]:
    """Host → its place: each is recorded by the next one that keeps, the last by the first.

    Args:
        hosts: All hosts of one inventory, in its order. One that is not monitored, or has no IP
            address on the fast link, has no part in the ring.
    """
    known = {host.name: host for host in _linked(hosts) if host.monitoring.enabled}
    keeping = [name for name, host in known.items() if host.monitoring.keeps]
    recorder = {name: _after(name, list(known), keeping) for name in known}
    recorded = {name: [of for of, by in recorder.items() if by == name] for name in known}
    # A datagram does not say whose it is to a program that only reads: each has a port.
    console = {
        of: known[by].monitoring.netconsole_port + place
        for by, every in recorded.items()
        for place, of in enumerate(every)
        if known[of].monitoring.netconsole
    }

    def neighbour(name: str, of: str = "") -> Neighbour:
        host = known[name]
        port = host.monitoring.exporter_port
        return Neighbour(name, str(host.fabric_address), port, console.get(of))

    found = {host.name: Ring() for host in hosts}
    for name, host in known.items():
        by = recorder[name]
        read = host.monitoring.keeps and host.monitoring.bind == "fabric"
        found[name] = Ring(
            recorder=neighbour(by, name) if by else None,
            recorded=tuple(neighbour(each, each) for each in recorded[name]),
            readers=tuple(neighbour(each) for each in known if each != name) if read else (),
        )
    return found


def no_twin(host: Settings, hosts: Sequence[Settings]) -> Refusals:
    """Refuse backups to a twin where a host has none, or no address on the link to it."""
    if not host.backup.has_twin:
        return
    if not is_address(host.fabric_address):
        yield Refusal(
            f'backup.to of {host.name} is "{TWIN}", and fabric_address is no IP address',
            found=f"fabric_address {host.fabric_address!r}",
            remedy="Give both Sparks their own address on the link between them.",
        )
    elif not any(is_address(each.fabric_address) for each in hosts if each.name != host.name):
        yield Refusal(
            f'backup.to of {host.name} is "{TWIN}", and {host.name} has no twin',
            found="no other host with a fabric_address",
            remedy="Add another Spark with its address on the link, or name a folder or an sftp "
            "server.",
        )


def partners(hosts: Sequence[Settings]) -> dict[str, Partners]:
    """Host → its partners: the backups of each go to the next one, those of the last to the first.

    Every host that asks for a twin has one: see `no_twin`.
    """
    linked = {
        host.name: Neighbour(host.name, str(host.fabric_address), host.backup.port)
        for host in _linked(hosts)
    }
    twins: dict[str, Neighbour] = {}
    of: dict[str, Neighbour] = {}
    for host in hosts:
        twin = _after(host.name, list(linked), linked) if host.backup.has_twin else None
        if twin:
            twins[host.name], of[twin] = linked[twin], linked[host.name]
    return {host.name: Partners(twins.get(host.name), of.get(host.name)) for host in hosts}


def _linked(hosts: Sequence[Settings]) -> list[Settings]:
    """Those with an address on the fast link."""
    return [host for host in hosts if is_address(host.fabric_address)]


def _after(name: str, every: Sequence[str], fit: Collection[str]) -> str | None:
    """The next of these hosts that fits; after the last one comes the first."""
    place = every.index(name)
    return next((each for each in (*every[place + 1 :], *every[:place]) if each in fit), None)
