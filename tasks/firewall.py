"""3. Network access to the host: SSH, and the inventory's open ports."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.system.firewall import RULES
from lockstep.tasks import run
from lockstep.tasks.operations import files
from lockstep.tasks.operations import firewall as operations


@deploy("Firewall")
def firewall() -> None:
    """Rules of our own beside Docker's; off means that services.py removes them."""
    this = run.current()
    settings = this.plan.settings
    if not settings.firewall.enabled:
        return
    written = this.files("firewall")
    files.tree(name="Write the rules", files=written)
    operations.in_force(
        name="Bring the rules into force",
        rules=next(file.text for file in written if file.path == RULES),
        ssh_ports=settings.firewall.ssh_ports,
    )
