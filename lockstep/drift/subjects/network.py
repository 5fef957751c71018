"""Drift of the network: listening sockets, interfaces, firewall, the kernel's remote messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.bound_models import LOOPBACK
from lockstep.inventory.values import is_loopback
from lockstep.monitoring import stack
from lockstep.monitoring.netconsole import SENDER
from lockstep.onhost.core.address_text import address_with_port
from lockstep.onhost.facts import firewall, network
from lockstep.resources.fact_comparison import DriftRow, Expectation, Kind, SubjectView

# Any address of the host beyond loopback.
_OWN = "(own)"
# Every address of the host.
_EVERY = ("0.0.0.0", "::")


def _opener(row: DriftRow) -> tuple[str, ...]:
    return ("ss", "-ltnp", f"sport = :{row.item.rpartition(':')[2]}")


KINDS = {
    "socket": Kind(network.foreign_and_exposed_sockets),
    "exposed port": Kind(network.foreign_and_exposed_sockets, "error", mend=_opener, scope="odd"),
    "network": Kind(network.interfaces_routes_and_resolvers),
    "firewall": Kind(firewall.foreign_rules, is_sealed=True),
    # The unit sets it up again and again, so the module or the route is missing.
    "netconsole": Kind(network.netconsole, mend=f"systemctl status {SENDER}", scope="odd"),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    return {
        network.foreign_and_exposed_sockets: {
            "ports": _ports(desired_state),
            "units": desired_state.unit_files,
        }
    }


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    to = desired_state.plan.ring.recorder
    if to is not None and to.console is not None:
        yield Expectation("netconsole", network.SENT, address_with_port(to.address, to.console))


def _ports(desired_state: DesiredState) -> dict[str, list[str]]:
    """Return the addresses at which each port may be open."""
    webui = desired_state.plan.settings.webui
    ports: dict[str, list[str]] = {}
    for model in desired_state.plan.models:
        ports.setdefault(str(model.port), []).extend(_reader_addresses(model.data.bind))
        if model.engine_port is not None:
            ports.setdefault(str(model.engine_port), []).append(LOOPBACK)
    gateway = desired_state.plan.settings.gateway
    ports[str(gateway.port)] = [LOOPBACK]
    if gateway.open_port is not None:
        ports.setdefault(str(gateway.open_port), []).extend(_reader_addresses(gateway.bind))
    if desired_state.plan.peers:
        ports[str(gateway.port)].append(_OWN)
    if webui.enabled:
        ports.setdefault(str(webui.port), []).extend(_reader_addresses(webui.bind))
    if desired_state.plan.backups.of:
        ports[str(desired_state.plan.settings.backup.port)] = [_OWN]
    for port, addresses in stack.listening(desired_state.plan).items():
        ports[str(port)] = [
            shown_address for address in addresses for shown_address in _reader_addresses(address)
        ]
    return ports


def _reader_addresses(bind: str) -> tuple[str, ...]:
    """Return an address to listen at, in the forms that the reader may show.

    A Go program such as Caddy takes either word for every address as both, and listens at "::".
    """
    if bind in _EVERY:
        return _EVERY
    return (bind,) if is_loopback(bind) else (_OWN,)
