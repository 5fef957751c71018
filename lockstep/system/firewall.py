"""The firewall of a host: a separate nftables table, from the inventory's open ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from lockstep.files.managed_file import CONFIGURATION, ManagedFile, command, unit_file
from lockstep.files.templating import render_template
from lockstep.inventory.host import HostPlan
from lockstep.inventory.values import is_loopback

TABLE = "lockstep"
RULES = f"{CONFIGURATION}/firewall.nft"
# The rules under which a fresh login came through; only these are loaded at boot.
KEPT = f"{CONFIGURATION}/firewall-kept.nft"
PROGRAM = command("firewall")
UNIT = "lockstep-firewall.service"


def firewall_files(plan: HostPlan) -> tuple[ManagedFile, ...]:
    """Return the rules and the unit that loads them at boot; () where the inventory wants none."""
    firewall = plan.settings.firewall
    if not firewall.enabled:
        return ()
    rules = render_template(
        "system/firewall.nft.j2",
        table=TABLE,
        ssh=sorted(set(firewall.ssh_ports)),
        open=open_ports(plan),
        peers=_networks_by_family((*firewall.peers, *_members(plan))),
        admitted=list(_admitted_sources(plan)),
    )
    unit = render_template("units/firewall.service.j2", program=PROGRAM, kept=KEPT)
    return (
        ManagedFile(RULES, rules, check="nft", stage="firewall"),
        unit_file(UNIT, unit, "firewall"),
    )


def _admitted_sources(plan: HostPlan) -> Iterator[tuple[str, str, dict[str, list[str]]]]:
    """Yield what is open to some hosts alone: its name, its "tcp dport", networks by families."""
    settings, ring, saved_peer = plan.settings, plan.ring, plan.backups.of
    admissions = (
        ("gateways", settings.gateway.port, plan.peers),
        ("recorder", settings.monitoring.exporter_port, [ring.recorder] if ring.recorder else []),
        ("Prometheus", settings.monitoring.prometheus_port, ring.readers),
        ("backups", settings.backup.port, [saved_peer] if saved_peer else []),
    )
    for description, port, hosts in admissions:
        yield description, f"tcp dport {port}", _networks_by_family(host.address for host in hosts)
    for peer in ring.recorded_hosts:
        if peer.console is not None:
            yield (
                f"kernel of {peer.name}",
                f"udp dport {peer.console}",
                _networks_by_family([peer.address]),
            )


def open_ports(plan: HostPlan) -> dict[str, list[int]]:
    """Return protocol → ports that other machines may reach, without those of SSH."""
    settings = plan.settings
    ports: dict[str, set[int]] = {"tcp": set(), "udp": set()}
    ports["tcp"] |= {model.port for model in plan.models if model.open}
    if settings.gateway.open_port is not None:
        ports["tcp"].add(settings.gateway.open_port)
    if settings.webui.enabled and not is_loopback(settings.webui.bind):
        ports["tcp"].add(settings.webui.port)
    if settings.copying:
        # A server listens there only while a deploy copies, and asks for that deploy's token.
        ports["tcp"].add(settings.copy_port)
    for entry in settings.firewall.open:
        protocol, _, port = entry.partition("/")
        ports[protocol].add(int(port))
    return {protocol: sorted(numbers) for protocol, numbers in ports.items()}


def _members(plan: HostPlan) -> list[str]:
    """Return the other members of this host's clusters: the ranks of an engine use any port."""
    return list(dict.fromkeys(address for group in plan.groups for address in group.peer_addresses))


def _networks_by_family(peers: Iterable[str]) -> dict[str, list[str]]:
    """Return nftables' word for a family of addresses → networks, which must not overlap."""
    networks = [ipaddress.ip_network(peer) for peer in peers]
    four = [network for network in networks if isinstance(network, ipaddress.IPv4Network)]
    six = [network for network in networks if isinstance(network, ipaddress.IPv6Network)]
    return {
        "ip": [str(network) for network in ipaddress.collapse_addresses(four)],
        "ip6": [str(network) for network in ipaddress.collapse_addresses(six)],
    }
