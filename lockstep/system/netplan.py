"""The addresses of the fast link between Sparks, as a netplan file."""

from __future__ import annotations

from lockstep.files.managed_file import ManagedFile, command
from lockstep.files.templating import render_template
from lockstep.inventory.settings import Settings

# The name in NVIDIA's own instructions for two Sparks. A file made by them is a finding, and is
# never in force beside ours.
NETPLAN = "/etc/netplan/40-cx7.yaml"
PROGRAM = command("fabric")


def netplan_files(settings: Settings) -> tuple[ManagedFile, ...]:
    """Return the file, of mode 0600 as netplan demands; () where no addresses are to be written."""
    fabric = settings.fabric
    if not fabric.netplan:
        return ()
    text = render_template("system/netplan.yaml.j2", interfaces=fabric.interfaces, mtu=fabric.mtu)
    return (ManagedFile(NETPLAN, text, mode="0600", stage="fabric"),)
