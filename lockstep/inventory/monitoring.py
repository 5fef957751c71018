"""Keys of inventory data for monitoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from lockstep.inventory import values
from lockstep.inventory.receivers import ReceiverEntry
from lockstep.onhost.core.schema import between


@dataclass(frozen=True)
class Monitoring:
    """The monitoring of a Spark, and its recorder (docs/monitoring.md).

    Attributes:
        enabled: Whether the host gives its state to Prometheus, its own and its recorder's.
        prometheus: Whether a Prometheus runs here. Without one nothing watches this host.
        alertmanager: Whether that Prometheus has an Alertmanager beside it, which tells people.
        bind: Address of Prometheus: "loopback", or "fabric" for `fabric_address`, where the other
            monitored hosts reach it.
        exporter_port: Port of node_exporter on loopback, and at `fabric_address` for the recorder.
        prometheus_port: Port of Prometheus.
        alertmanager_port: Port of Alertmanager on loopback.
        gateway_key: Full path, on the host, of a file with a key for the gateway's counts, where
            `gateway.local_keys` asks for one.
        retention_gib: Disk space of Prometheus' data, GiB; the oldest are removed.
        netconsole: Whether the kernel of this host sends its messages to the recorder.
        netconsole_port: UDP port at `fabric_address` for the messages of the host that this one
            records; of a second one, the port after it.
        tell: Receivers of alerts.
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
    tell: tuple[ReceiverEntry, ...] = ()

    @property
    def ports(self) -> dict[str, int]:
        """Each key → port of everything that listens here."""
        ports_by_key = {"exporter_port": self.exporter_port} if self.enabled else {}
        if self.keeps:
            ports_by_key["prometheus_port"] = self.prometheus_port
        if self.tells:
            ports_by_key["alertmanager_port"] = self.alertmanager_port
        return ports_by_key

    @property
    def keeps(self) -> bool:
        """True if Prometheus runs here."""
        return self.enabled and self.prometheus

    @property
    def tells(self) -> bool:
        """True if Alertmanager runs here."""
        return self.keeps and self.alertmanager
