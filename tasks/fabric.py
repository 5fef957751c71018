"""The fast link between Sparks, before anything is copied over it."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks.operations import fabric as operations
from lockstep.tasks.run import run_state


@deploy("Fabric")
def fabric() -> None:
    """Write addresses and MTU of the ConnectX-7, where the inventory wants that."""
    desired_state = run_state.current_desired_state()
    for file in desired_state.files("fabric"):
        operations.apply_addresses(
            name="Give the fast link its addresses",
            file=file,
            settings=desired_state.plan.settings,
        )
