"""The gateway: every model under one address."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks.operations import services as operations
from lockstep.tasks.run import run_state


@deploy("Gateway")
def gateway() -> None:
    """Deploy its configuration, page and units; people's keys are not part of a deploy."""
    desired_state = run_state.current_desired_state()
    operations.write_stage_files(name="Write the gateway", stage="gateway")
    operations.restart_outdated(
        name="Run the gateway",
        units=desired_state.gateway_units,
        stage="gateway",
        at_boot=desired_state.gateway_units,
    )
