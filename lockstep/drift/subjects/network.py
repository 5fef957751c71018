"""Drift of the network: listening sockets, interfaces, firewall, where the kernel's words go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects.kind import Expectation, Kind, Row, Seen
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.inventory.bound_targets import LOOPBACK
from lockstep.inventory.monitoring import at
from lockstep.inventory.values import is_loopback
from lockstep.monitoring import stack
from lockstep.monitoring.netconsole import SENDER
from lockstep.onhost.facts import firewall, network

# Any address of the host beyond loopback.
_OWN = "(own)"


def _listener(row: Row) -> tuple[str, ...]:
    protocol, address, _ = row.item.split(" ", 2)
    port = address.rpartition(":")[2]
    if row.expected is not None or port == "*":
        return ()
    return ("ss", "-lnp", f"--{protocol}", f"sport = :{port}")


def _opener(row: Row) -> tuple[str, ...]:
    return ("ss", "-ltnp", f"sport = :{row.item.rpartition(':')[2]}")


def _mtu(row: Row) -> tuple[str, ...]:
    """The size of packets as elsewhere, until the next boot."""
    name, _, key = row.item.partition(" ")
    if key != "mtu" or row.expected is None or row.found is None:
        return ()
    return ("ip", "link", "set", name, "mtu", row.expected)


KINDS = {
    "socket": Kind(network.sockets, mend=_listener),
    "exposed port": Kind(network.sockets, "error", mend=_opener, scope="odd"),
    "network": Kind(network.interfaces, mend=_mtu),
    "firewall": Kind(firewall.every, sealed=True),
    # Its unit sets it up again and again: what is missing is the module, or the way there.
    "netconsole": Kind(network.netconsole, mend=f"systemctl status {SENDER}", scope="odd"),
}


def questions(this: Intended) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    return {network.sockets: {"ports": _ports(this), "units": this.unit_files}}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    to = this.plan.ring.recorder
    if to is not None and to.console is not None:
        yield Expectation("netconsole", network.SENT, at(to.address, to.console))


def _ports(this: Intended) -> dict[str, list[str]]:
    """Port → addresses at which it may be open."""
    webui = this.plan.settings.webui
    found: dict[str, list[str]] = {}
    for target in this.plan.targets:
        found.setdefault(str(target.port), []).append(_shown(target.data.bind))
        if target.engine_port is not None:
            found.setdefault(str(target.engine_port), []).append(LOOPBACK)
    gateway = this.plan.settings.gateway
    found[str(gateway.port)] = [LOOPBACK]
    if gateway.open_port is not None:
        found.setdefault(str(gateway.open_port), []).append(_shown(gateway.bind))
    if this.plan.peers:
        found[str(gateway.port)].append(_OWN)
    if webui.enabled:
        found.setdefault(str(webui.port), []).append(_shown(webui.bind))
    if this.plan.backups.of:
        found[str(this.plan.settings.backup.port)] = [_OWN]
    for port, addresses in stack.listening(this.plan).items():
        found[str(port)] = [_shown(address) for address in addresses]
    return found


def _shown(bind: str) -> str:
    """An address to listen at as the reader shows it."""
    return bind if bind in ("0.0.0.0", "::") or is_loopback(bind) else _OWN
