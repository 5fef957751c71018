"""The kernel's messages go to another host as they come, and stay there when this one freezes.

The sender is the kernel's own netconsole. The receiver is systemd's socket, `cat` and the journal
of the host that records: nothing of ours listens.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.files.managed_file import ManagedFile, command, unit_file
from lockstep.files.programs import closure
from lockstep.files.templating import render
from lockstep.inventory.host import HostPlan
from lockstep.inventory.neighbours import Ring
from lockstep.onhost.__main__ import MODULES
from lockstep.onhost.core.address import at
from lockstep.units.restart_key import keyed

SENDER = "lockstep-netconsole.service"


def identifier(host: str) -> str:
    """Under which name the messages of a host are in the journal of the one that records it."""
    return f"netconsole-{host}"


def receiver(host: str) -> str:
    """The unit, without ".service" or ".socket", that takes the messages of a host."""
    return f"lockstep-{identifier(host)}"


def senders(ring: Ring) -> dict[str, int]:
    """Host whose kernel sends here → UDP port."""
    return {each.name: each.console for each in ring.recorded if each.console is not None}


def units(ring: Ring) -> list[str]:
    """What of it starts at boot, in the order of the start."""
    found = [f"{receiver(host)}.{kind}" for host in senders(ring) for kind in ("socket", "service")]
    return [*found, SENDER] if ring.recorder and ring.recorder.console is not None else found


def netconsole_files(plan: HostPlan) -> Iterator[ManagedFile]:
    """The units of the sender and of the receivers of a host."""
    here, to = str(plan.settings.fabric_address), plan.ring.recorder
    if to is not None and to.console is not None:
        sender = keyed(
            "units/netconsole.service.j2",
            contents=closure(MODULES["netconsole"]),
            to=to.name,
            start=command("netconsole", "send", here, to.address, str(to.console)),
            end=command("netconsole", "end"),
        )
        yield unit_file(SENDER, sender, "monitoring")
    for each in plan.ring.recorded:
        if each.console is None:
            continue
        name, address = receiver(each.name), at(here, each.console)
        service = keyed(
            "units/netconsole-receiver.service.j2",
            contents=address,
            host=each.name,
            socket=f"{name}.socket",
            identifier=identifier(each.name),
        )
        yield unit_file(f"{name}.service", service, "monitoring")
        socket = render(
            "units/netconsole-receiver.socket.j2",
            host=each.name,
            address=address,
            sender=each.address,
            service=f"{name}.service",
        )
        yield unit_file(f"{name}.socket", socket, "monitoring")
