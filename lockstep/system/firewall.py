"""The host's firewall: a separate nftables table, from the inventory's open ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from lockstep.files.managed_file import CONFIGURATION, SYSTEMD, ManagedFile, command
from lockstep.files.templating import render
from lockstep.inventory.bound_targets import BoundTarget
from lockstep.inventory.neighbours import Partners, Ring
from lockstep.inventory.settings import Settings
from lockstep.inventory.values import is_loopback
from lockstep.onhost.gateway.configuration import Peer

TABLE = "lockstep"
RULES = f"{CONFIGURATION}/firewall.nft"
# The rules that a fresh login came through; only they are loaded at boot.
KEPT = f"{CONFIGURATION}/firewall-kept.nft"
PROGRAM = command("firewall")
UNIT = "lockstep-firewall.service"
# What to ask the reader `firewall`.
QUESTION = {
    "kept": KEPT,
    "unit": UNIT,
}


def firewall_files(
    settings: Settings,
    targets: Sequence[BoundTarget],
    gateways: Sequence[Peer] = (),
    ring: Ring | None = None,
    backups: Partners | None = None,
) -> tuple[ManagedFile, ...]:
    """The rules and the unit that loads them at boot; () where the inventory wants none."""
    firewall = settings.firewall
    if not firewall.enabled:
        return ()
    rules = render(
        "system/firewall.nft.j2",
        table=TABLE,
        ssh=sorted(set(firewall.ssh_ports)),
        open=opened(settings, targets),
        peers=_by_family((*firewall.peers, *_members(targets))),
        admitted=_admitted(settings, gateways, ring or Ring(), backups or Partners()),
    )
    unit = render("units/firewall.service.j2", program=PROGRAM, kept=KEPT)
    return (
        ManagedFile(RULES, rules, check="nft", stage="firewall"),
        ManagedFile(f"{SYSTEMD}/{UNIT}", unit, check="unit", stage="firewall"),
    )


def _admitted(
    settings: Settings, gateways: Sequence[Peer], ring: Ring, backups: Partners
) -> list[tuple[str, str, dict[str, list[str]]]]:
    """What is open to some hosts alone: what it is, its "tcp dport", networks by families."""
    monitoring = settings.monitoring
    recorders = [ring.recorder] if ring.recorder else []
    saved = [backups.of.address] if backups.of else []
    found = (
        ("gateways", f"tcp dport {settings.gateway.port}", [peer.address for peer in gateways]),
        (
            "recorder",
            f"tcp dport {monitoring.exporter_port}",
            [each.address for each in recorders],
        ),
        (
            "Prometheus",
            f"tcp dport {monitoring.prometheus_port}",
            [each.address for each in ring.readers],
        ),
        ("backups", f"tcp dport {settings.backup.port}", saved),
        *(
            (f"kernel of {each.name}", f"udp dport {each.console}", [each.address])
            for each in ring.recorded
            if each.console is not None
        ),
    )
    return [(what, port, _by_family(addresses)) for what, port, addresses in found]


def opened(settings: Settings, targets: Iterable[BoundTarget]) -> dict[str, list[int]]:
    """Protocol → ports that other machines may reach, SSH's left out."""
    ports: dict[str, set[int]] = {"tcp": set(), "udp": set()}
    ports["tcp"] |= {target.port for target in targets if target.open}
    if settings.gateway.open_port is not None:
        ports["tcp"].add(settings.gateway.open_port)
    if settings.webui.enabled and not is_loopback(settings.webui.bind):
        ports["tcp"].add(settings.webui.port)
    if settings.copying:
        # Something listens there only while a deploy copies, and asks for that deploy's token.
        ports["tcp"].add(settings.copy_port)
    for entry in settings.firewall.open:
        protocol, _, port = entry.partition("/")
        ports[protocol].add(int(port))
    return {protocol: sorted(found) for protocol, found in ports.items()}


def _members(targets: Iterable[BoundTarget]) -> list[str]:
    """The other members of this host's clusters: an engine's ranks talk at ports of any number."""
    groups = (target.group for target in targets if target.group)
    return list(dict.fromkeys(address for group in groups for address in group.others))


def _by_family(peers: Iterable[str]) -> dict[str, list[str]]:
    """nftables' word for a family of addresses → networks; a set of it must not overlap."""
    networks = [ipaddress.ip_network(peer) for peer in peers]
    four = [network for network in networks if isinstance(network, ipaddress.IPv4Network)]
    six = [network for network in networks if isinstance(network, ipaddress.IPv6Network)]
    return {
        "ip": [str(network) for network in ipaddress.collapse_addresses(four)],
        "ip6": [str(network) for network in ipaddress.collapse_addresses(six)],
    }
