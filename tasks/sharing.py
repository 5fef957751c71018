"""Lets Sparks copy from each other over the fast link while the deploy runs."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks import run
from lockstep.tasks.operations import sharing as operations


@deploy("Sharing")
def opened() -> None:
    """Let the Sparks of this run copy from each other, where one of them lacks something."""
    operations.opened(
        name="Let the Sparks copy from each other",
        lease=run.lease(),
        stale=run.stale_leases(ending=False),
    )


@deploy("Sharing")
def closed() -> None:
    """Nothing listens any more."""
    operations.closed(
        name="End the copying between Sparks",
        lease=run.lease(),
        stale=run.stale_leases(ending=True),
    )
