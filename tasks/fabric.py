"""The fast link between Sparks, before anything is copied over it."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks import run
from lockstep.tasks.operations import fabric as operations


@deploy("Fabric")
def fabric() -> None:
    """Addresses and MTU of the ConnectX-7, where the inventory wants them written."""
    this = run.current()
    for file in this.files("fabric"):
        operations.addressed(
            name="Give the fast link its addresses", text=file.text, settings=this.plan.settings
        )
