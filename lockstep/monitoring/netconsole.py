"""Files for the kernel's messages: they go to another host at once, and survive a freeze of this.

The sender is the kernel's own netconsole. The receiver is systemd's socket, `cat` and the journal
of the host that records: nothing of ours listens.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.files.managed_file import ManagedFile, command, unit_file
from lockstep.files.programs import modules_with_imports
from lockstep.files.templating import render_template
from lockstep.inventory.host import HostPlan
from lockstep.inventory.pairing import Ring
from lockstep.onhost.__main__ import MODULES
from lockstep.onhost.core.address_text import address_with_port
from lockstep.units.restart_key import with_restart_key

SENDER = "lockstep-netconsole.service"


def identifier(host: str) -> str:
    """Return the identifier of a host's messages in the journal of the host that records it."""
    return f"netconsole-{host}"


def receiver(host: str) -> str:
    """Return the unit, without ".service" or ".socket", that takes the messages of a host."""
    return f"lockstep-{identifier(host)}"


def senders(ring: Ring) -> dict[str, int]:
    """Return host whose kernel sends here → UDP port."""
    return {peer.name: peer.console for peer in ring.recorded_hosts if peer.console is not None}


def units(ring: Ring) -> list[str]:
    """Return the units that start at boot, in the order of the start."""
    unit_names = [
        f"{receiver(host)}.{kind}" for host in senders(ring) for kind in ("socket", "service")
    ]
    return (
        [*unit_names, SENDER] if ring.recorder and ring.recorder.console is not None else unit_names
    )


def netconsole_files(plan: HostPlan) -> Iterator[ManagedFile]:
    """Yield the units of the sender and of the receivers of a host."""
    own_address, to = str(plan.settings.fabric_address), plan.ring.recorder
    if to is not None and to.console is not None:
        sender = with_restart_key(
            "units/netconsole.service.j2",
            contents=modules_with_imports(MODULES["netconsole"]),
            to=to.name,
            start=command("netconsole", "send", own_address, to.address, str(to.console)),
            end=command("netconsole", "end"),
        )
        yield unit_file(SENDER, sender, "monitoring")
    for peer in plan.ring.recorded_hosts:
        if peer.console is None:
            continue
        name, address = receiver(peer.name), address_with_port(own_address, peer.console)
        service = with_restart_key(
            "units/netconsole-receiver.service.j2",
            contents=address,
            host=peer.name,
            socket=f"{name}.socket",
            identifier=identifier(peer.name),
        )
        yield unit_file(f"{name}.service", service, "monitoring")
        socket = render_template(
            "units/netconsole-receiver.socket.j2",
            host=peer.name,
            address=address,
            sender=peer.address,
            service=f"{name}.service",
        )
        yield unit_file(f"{name}.socket", socket, "monitoring")
