"""10. The gateway: every model under one address."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks import run
from lockstep.tasks.operations import services as operations


@deploy("Gateway")
def gateway() -> None:
    """Its configuration, its page and its units; a person's key is no business of a deploy."""
    this = run.current()
    operations.written(name="Write the gateway", stage="gateway")
    operations.in_force(
        name="Run the gateway",
        units=this.gateway_units,
        stage="gateway",
        enabled=this.gateway_units,
    )
