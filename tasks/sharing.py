"""Copies between Sparks over the fast link while the deploy runs."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks import run
from lockstep.tasks.operations import sharing as operations


@deploy("Sharing")
def open_sharing() -> None:
    """Let the Sparks of this run copy from each other, if one of them lacks something."""
    operations.open_sharing(
        name="Let the Sparks copy from each other",
        lease=run.lease(),
        stale=run.stale_leases(ending=False),
    )


@deploy("Sharing")
def close_sharing() -> None:
    """Stop the servers for copies."""
    operations.close_sharing(
        name="End the copying between Sparks",
        lease=run.lease(),
        stale=run.stale_leases(ending=True),
    )
