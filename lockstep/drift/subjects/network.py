"""Drift of the network: listening sockets, interfaces, firewall."""

from __future__ import annotations

from typing import Any

from lockstep.drift.subjects.kind import Kind, Row
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.inventory.bound_targets import LOOPBACK
from lockstep.onhost.facts import firewall, network


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
}


def questions(this: Intended) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    return {network.sockets: {"ports": _ports(this), "units": this.unit_files}}


def _ports(this: Intended) -> dict[str, list[str]]:
    """Port → addresses at which it may be open."""
    webui = this.plan.settings.webui
    found: dict[str, list[str]] = {}
    for target in this.plan.targets:
        for recipe in target.recipes:
            found.setdefault(str(target.port), []).append(target.data.bind)
            behind = target.engine_port(recipe)
            if behind is not None:
                found.setdefault(str(behind), []).append(LOOPBACK)
    if webui.enabled:
        found.setdefault(str(webui.port), []).append(webui.bind)
    return found
