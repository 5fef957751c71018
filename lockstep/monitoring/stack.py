"""The programs of a monitored host: node_exporter, our writer, Prometheus, Alertmanager.

All come from the distribution. The packages' own units stay masked. Ours run the same programs with
our configuration, on loopback or on the fast link, under an account that systemd makes for the time
of the run.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.files.managed_file import CONFIGURATION, ManagedFile, command, unit_file
from lockstep.files.programs import modules_with_imports
from lockstep.files.templating import render_template
from lockstep.inventory.bound_models import LOOPBACK
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Certificate
from lockstep.monitoring import alertmanager, netconsole
from lockstep.monitoring.rules import EVERY_S, PEER_JOB, rules_text
from lockstep.onhost.__main__ import MODULES
from lockstep.onhost.core.address_text import address_with_port
from lockstep.onhost.monitoring.metric_table import METRICS, QUICK_S
from lockstep.units.restart_key import with_restart_key
from lockstep.units.tls_unit import certificate_paths

EXPORTER, PROMETHEUS = "prometheus-node-exporter", "prometheus"
ALERTMANAGER = "prometheus-alertmanager"
#: Package → its own unit, which would run with its own configuration as soon as it is installed.
PACKAGED_UNITS = {name: f"{name}.service" for name in (EXPORTER, PROMETHEUS, ALERTMANAGER)}
#: Package → the account that it makes.
ACCOUNTS = dict.fromkeys(PACKAGED_UNITS, "prometheus")
METRICS_UNIT = "lockstep-metrics.service"
EXPORTER_UNIT = "lockstep-node-exporter.service"
EXPORTER_SOCKET = "lockstep-node-exporter.socket"
PROMETHEUS_UNIT = "lockstep-prometheus.service"
ALERTMANAGER_UNIT = alertmanager.UNIT
#: Units with data of their own, which is removed with them.
KEEPING = (PROMETHEUS_UNIT, ALERTMANAGER_UNIT)
PROMETHEUS_FILE = f"{CONFIGURATION}/prometheus.yml"
RULES_FILE = f"{CONFIGURATION}/prometheus-rules.yml"
ALERTMANAGER_FILE = f"{CONFIGURATION}/alertmanager.yml"
#: Configuration files that are told apart only by their names.
CONFIGURATIONS = (PROMETHEUS_FILE, RULES_FILE, ALERTMANAGER_FILE)
#: Folder that the writer writes to and node_exporter reads from.
TEXTFILES = "/run/lockstep-metrics"
# Names of credentials.
_KEY, _CONFIGURATION = "gateway-key", "alertmanager.yml"
# Collectors that show the state of a Spark; the other default ones cost time at each scrape.
_COLLECTORS = (
    *("cpu", "diskstats", "filesystem", "hwmon", "infiniband", "loadavg", "meminfo", "netdev"),
    *("nvme", "os", "pressure", "stat", "textfile", "thermal_zone", "time", "uname"),
    "vmstat",
)
# Collectors for the node_exporter of a recorded host; each costs it time.
_RECORDED = ("diskstats", "loadavg", "meminfo", "pressure", "stat", "textfile", "thermal_zone")
_NODE = (
    *("node_boot_time_seconds", "node_load1", "node_memory_MemFree_bytes"),
    *("node_disk_read_bytes_total", "node_disk_written_bytes_total"),
    *("node_pressure_io_stalled_seconds_total", "node_pressure_memory_stalled_seconds_total"),
    "node_thermal_zone_temp",
)
_SLOW = (
    *("lockstep_deploy_running", "lockstep_hot_model", "lockstep_loading_model"),
    *("lockstep_memory_minimum_bytes", "lockstep_memory_minimum_ended"),
)
#: The series that are kept; all others of a collector are dropped.
SERIES = (*(name for name, metric in METRICS.items() if metric.every_s == QUICK_S), *_SLOW, *_NODE)


def packages(plan: HostPlan) -> list[str]:
    """Return the Debian packages that monitoring needs on a host."""
    monitoring = plan.settings.monitoring
    names = [EXPORTER] if monitoring.enabled else []
    names += [PROMETHEUS] if monitoring.keeps else []
    return [*names, ALERTMANAGER] if monitoring.tells else names


def units(plan: HostPlan) -> list[str]:
    """Return the units that start at boot, in the order of the start."""
    monitoring = plan.settings.monitoring
    names = [METRICS_UNIT, EXPORTER_SOCKET, EXPORTER_UNIT] if monitoring.enabled else []
    names += netconsole.units(plan.ring)
    names += [ALERTMANAGER_UNIT] if monitoring.tells else []
    return [*names, PROMETHEUS_UNIT] if monitoring.keeps else names


def listening(plan: HostPlan) -> dict[int, list[str]]:
    """Return port → addresses at which a part of monitoring listens."""
    monitoring = plan.settings.monitoring
    address = str(plan.settings.fabric_address)
    addresses_by_port = {port: [LOOPBACK] for port in monitoring.ports.values()}
    if plan.ring.recorder:
        addresses_by_port[monitoring.exporter_port].append(address)
    if monitoring.keeps and monitoring.bind == "fabric":
        addresses_by_port[monitoring.prometheus_port] = [address]
    for port in netconsole.senders(plan.ring).values():
        addresses_by_port[port] = [address]
    return addresses_by_port


def monitoring_files(plan: HostPlan) -> Iterator[ManagedFile]:
    """Yield all files that the deploy writes for monitoring; nothing where it is off."""
    monitoring = plan.settings.monitoring
    if not monitoring.enabled:
        return
    yield unit_file(METRICS_UNIT, _writer(plan), "monitoring")
    yield from _exporter(plan)
    yield from netconsole.netconsole_files(plan)
    if monitoring.tells:
        yield from _alertmanager(plan)
    if monitoring.keeps:
        yield from _prometheus(plan)


def _writer(plan: HostPlan) -> str:
    tls = plan.settings.gateway.tls
    words: tuple[str, ...] = ()
    if isinstance(tls, Certificate):
        words = ("--certificate", certificate_paths(tls)["certificate"])
    return with_restart_key(
        "units/metrics.service.j2",
        contents=modules_with_imports(MODULES["metrics"]),
        start=command("metrics", *words),
    )


def _exporter(plan: HostPlan) -> Iterator[ManagedFile]:
    port = plan.settings.monitoring.exporter_port
    addresses = [address_with_port(address, port) for address in listening(plan)[port]]
    start = (
        "/usr/bin/prometheus-node-exporter",
        "--web.systemd-socket",
        "--web.disable-exporter-metrics",
        "--collector.disable-defaults",
        *(f"--collector.{name}" for name in _COLLECTORS),
        f"--collector.textfile.directory={TEXTFILES}",
    )
    # A new address needs a restart of the service, which restarts the socket.
    service = with_restart_key(
        "units/node-exporter.service.j2",
        contents=addresses,
        socket=EXPORTER_SOCKET,
        writer=METRICS_UNIT,
        start=start,
    )
    yield unit_file(EXPORTER_UNIT, service, "monitoring")
    socket = render_template(
        "units/node-exporter.socket.j2", addresses=addresses, service=EXPORTER_UNIT
    )
    yield unit_file(EXPORTER_SOCKET, socket, "monitoring")


def _prometheus(plan: HostPlan) -> Iterator[ManagedFile]:
    settings = plan.settings
    monitoring, gateway = settings.monitoring, settings.gateway
    credentials = {_KEY: monitoring.gateway_key} if gateway.local_keys else {}
    engines = {
        model.name: address_with_port(LOOPBACK, model.engine_port or model.port)
        for model in plan.models
        if model.answers
    }
    text = render_template(
        "monitoring/prometheus.yml.j2",
        host=plan.name,
        rules=RULES_FILE,
        every_s=EVERY_S,
        exporter=address_with_port(LOOPBACK, monitoring.exporter_port),
        gateway=address_with_port(LOOPBACK, gateway.port),
        gateway_key=f"/run/credentials/{PROMETHEUS_UNIT}/{_KEY}" if credentials else None,
        engines=engines,
        peer_job=PEER_JOB,
        recorded={
            peer.name: address_with_port(peer.address, peer.port)
            for peer in plan.ring.recorded_hosts
        },
        record_s=QUICK_S,
        collectors=_RECORDED,
        series=SERIES,
        alertmanager=address_with_port(LOOPBACK, monitoring.alertmanager_port)
        if monitoring.tells
        else None,
    )
    rules = rules_text(settings, [peer.name for peer in plan.ring.recorded_hosts])
    yield ManagedFile(PROMETHEUS_FILE, text, check="prometheus", stage="monitoring")
    yield ManagedFile(RULES_FILE, rules, check="rules", stage="monitoring")
    ((address,),) = [listening(plan)[monitoring.prometheus_port]]
    service = with_restart_key(
        "units/prometheus.service.j2",
        contents={"configuration": text, "rules": rules},
        description="Keep what this Spark tells of itself",
        credentials=credentials,
        loopback=address == LOOPBACK and not plan.ring.recorded_hosts,
        memory="1G",
        start=(
            "/usr/bin/prometheus",
            f"--config.file={PROMETHEUS_FILE}",
            "--storage.tsdb.path=/var/lib/lockstep-prometheus",
            f"--storage.tsdb.retention.size={monitoring.retention_gib}GB",
            f"--web.listen-address={address_with_port(address, monitoring.prometheus_port)}",
        ),
    )
    yield unit_file(PROMETHEUS_UNIT, service, "monitoring")


def _alertmanager(plan: HostPlan) -> Iterator[ManagedFile]:
    text = alertmanager.alertmanager_text(plan.settings)
    yield ManagedFile(
        ALERTMANAGER_FILE, text, mode="0600", check="alertmanager", stage="monitoring"
    )
    credential_files = {
        _CONFIGURATION: ALERTMANAGER_FILE,
        **alertmanager.credentials(plan.settings),
    }
    address = address_with_port(LOOPBACK, plan.settings.monitoring.alertmanager_port)
    service = with_restart_key(
        "units/prometheus.service.j2",
        contents={"configuration": text},
        description="Tell people what Prometheus finds wrong",
        credentials=credential_files,
        loopback=not alertmanager.receivers(plan.settings),
        memory="256M",
        start=(
            "/usr/bin/prometheus-alertmanager",
            f"--config.file=/run/credentials/{ALERTMANAGER_UNIT}/{_CONFIGURATION}",
            "--storage.path=/var/lib/lockstep-alertmanager",
            # No gossip: each host tells of itself.
            "--cluster.listen-address=",
            f"--web.listen-address={address}",
        ),
    )
    yield unit_file(ALERTMANAGER_UNIT, service, "monitoring")
