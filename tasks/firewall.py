"""Network access to the host: SSH, and the inventory's open ports."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.system.firewall import RULES
from lockstep.tasks.operations import files
from lockstep.tasks.operations import firewall as operations
from lockstep.tasks.run import run_state


@deploy("Firewall")
def firewall() -> None:
    """Load our own rules beside Docker's; if they are off, services.py removes them."""
    desired_state = run_state.current_desired_state()
    settings = desired_state.plan.settings
    if not settings.firewall.enabled:
        return
    rule_files = desired_state.files("firewall")
    files.write_files(name="Write the rules", files=rule_files)
    operations.load_rules(
        name="Bring the rules into force",
        rules=next(file.text for file in rule_files if file.path == RULES),
        ssh_ports=settings.firewall.ssh_ports,
    )
