"""Keys of inventory data for monitoring, and which Spark records which."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from lockstep.inventory import values
from lockstep.inventory.receivers import Told
from lockstep.onhost.core.schema import between


@dataclass(frozen=True)
class Monitoring:
    """What a Spark tells of itself, and who keeps it (docs/monitoring.md).

    Attributes:
        enabled: Whether the host tells its state to Prometheus, its own and its recorder's.
        prometheus: Whether a Prometheus runs here. Without one nothing watches this host.
        alertmanager: Whether that Prometheus has an Alertmanager beside it, which tells people.
        bind: Where Prometheus listens: "loopback", or "fabric" for `fabric_address`, where the
            other monitored hosts reach it.
        exporter_port: Port of node_exporter on loopback, and at `fabric_address` for the recorder.
        prometheus_port: Port of Prometheus.
        alertmanager_port: Port of Alertmanager on loopback.
        gateway_key: Full path, on the host, of a file with a key for the gateway's counts, where
            `gateway.local_keys` asks for one.
        retention_gib: Disk space of Prometheus' data, GiB; the oldest are removed.
        netconsole: Whether the kernel of this host sends its messages to the recorder.
        netconsole_port: UDP port at `fabric_address` for the messages of the host that this one
            records; of a second one, the port after it.
        tell: Who is told of alerts.
    """

    enabled: bool = False
    prometheus: bool = True
    alertmanager: bool = True
    bind: Literal["loopback", "fabric"] = "loopback"
    exporter_port: values.Port = 9100
    prometheus_port: values.Port = 9090
    alertmanager_port: values.Port = 9093
    gateway_key: values.File | None = None
    retention_gib: Annotated[int, between(1, 1000, "is no size for the data", " GiB")] = 5
    netconsole: bool = True
    netconsole_port: values.Port = 6666
    tell: tuple[Told, ...] = ()

    @property
    def ports(self) -> dict[str, int]:
        """Key → port of everything that listens here."""
        found = {"exporter_port": self.exporter_port} if self.enabled else {}
        if self.keeps:
            found["prometheus_port"] = self.prometheus_port
        if self.tells:
            found["alertmanager_port"] = self.alertmanager_port
        return found

    @property
    def keeps(self) -> bool:
        """Whether Prometheus runs here."""
        return self.enabled and self.prometheus

    @property
    def tells(self) -> bool:
        """Whether Alertmanager runs here."""
        return self.keeps and self.alertmanager


@dataclass(frozen=True)
class Neighbour:
    """Another monitored host.

    Attributes:
        name: As the inventory has it.
        address: On the fast link.
        port: Its exporter's.
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
class Monitored:
    """One host as the ring sees it: its name, its `fabric_address`, its data."""

    name: str
    address: str | None
    data: Monitoring


def rings(hosts: Sequence[Monitored]) -> dict[str, Ring]:
    """Host → its place: each is recorded by the next one that keeps, the last by the first.

    Args:
        hosts: All hosts of one inventory, in its order. One that is not monitored, or has no IP
            address on the fast link, has no part in the ring.
    """
    linked = [host for host in hosts if host.data.enabled and is_address(host.address)]
    known = {host.name: host for host in linked}
    keeping = [host.name for host in linked if host.data.keeps]
    recorder = {host.name: after(host.name, list(known), keeping) for host in linked}
    recorded = {name: [of for of, by in recorder.items() if by == name] for name in known}
    # A datagram does not say whose it is to a program that only reads: each has a port.
    console = {
        of: known[by].data.netconsole_port + place if known[of].data.netconsole else None
        for by, every in recorded.items()
        for place, of in enumerate(every)
    }

    def neighbour(name: str, of: str = "") -> Neighbour:
        host = known[name]
        return Neighbour(name, str(host.address), host.data.exporter_port, console.get(of))

    return {
        host.name: Ring(
            recorder=neighbour(by, host.name) if (by := recorder.get(host.name)) else None,
            recorded=tuple(neighbour(name, name) for name in recorded.get(host.name, ())),
            readers=tuple(neighbour(name) for name in known if name != host.name)
            if host.data.keeps and host.data.bind == "fabric"
            else (),
        )
        for host in hosts
    }


def at(address: str, port: int) -> str:
    """An address to listen at or to ask, with its port."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def is_address(text: str | None) -> bool:
    """Whether it is an IP address, which the firewall and a listener need; a name is none."""
    try:
        ipaddress.ip_address(text or "")
    except ValueError:
        return False
    return True


def after(name: str, every: Sequence[str], fit: Collection[str]) -> str | None:
    """The next of these hosts that fits; after the last one comes the first.

    Args:
        name: The host.
        every: All hosts, in the inventory's order.
        fit: Those of them that serve.
    """
    place = every.index(name)
    return next((each for each in (*every[place + 1 :], *every[:place]) if each in fit), None)
