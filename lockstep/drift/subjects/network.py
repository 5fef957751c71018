"""Drift of the network: listening sockets, interfaces, firewall, where the kernel's words go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects.kind import Expectation, Kind, Row, Seen
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.inventory.bound_targets import LOOPBACK
from lockstep.inventory.values import is_loopback
from lockstep.monitoring import stack
from lockstep.monitoring.netconsole import SENDER
from lockstep.onhost.core.address import at
from lockstep.onhost.facts import firewall, network

# Any address of the host beyond loopback.
_OWN = "(own)"
# Every address of the host.
_EVERY = ("0.0.0.0", "::")


def _opener(row: Row) -> tuple[str, ...]:
    return ("ss", "-ltnp", f"sport = :{row.item.rpartition(':')[2]}")


KINDS = {
    "socket": Kind(network.sockets),
    "exposed port": Kind(network.sockets, "error", mend=_opener, scope="odd"),
    "network": Kind(network.interfaces),
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
        found.setdefault(str(target.port), []).extend(_reader_addresses(target.data.bind))
        if target.engine_port is not None:
            found.setdefault(str(target.engine_port), []).append(LOOPBACK)
    gateway = this.plan.settings.gateway
    found[str(gateway.port)] = [LOOPBACK]
    if gateway.open_port is not None:
        found.setdefault(str(gateway.open_port), []).extend(_reader_addresses(gateway.bind))
    if this.plan.peers:
        found[str(gateway.port)].append(_OWN)
    if webui.enabled:
        found.setdefault(str(webui.port), []).extend(_reader_addresses(webui.bind))
    if this.plan.backups.of:
        found[str(this.plan.settings.backup.port)] = [_OWN]
    for port, addresses in stack.listening(this.plan).items():
        found[str(port)] = [shown for address in addresses for shown in _reader_addresses(address)]
    return found


def _reader_addresses(bind: str) -> tuple[str, ...]:
    """An address to listen at as the reader may show it.

    A program in Go, as Caddy, takes either word for every address for both, and listens at "::".
    """
    if bind in _EVERY:
        return _EVERY
    return (bind,) if is_loopback(bind) else (_OWN,)
