"""Copies between Sparks over the fast link while the deploy runs."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks.operations import peer_sharing as operations
from lockstep.tasks.run import run_state


@deploy("Sharing")
def serve_peers() -> None:
    """Let the Sparks of this run copy from each other, if one of them lacks something."""
    operations.serve_peers(
        name="Let the Sparks copy from each other",
        lease=run_state.current_lease(),
        stale=run_state.stale_leases(ending=False),
    )


@deploy("Sharing")
def stop_serving_peers() -> None:
    """Stop the servers for copies."""
    operations.stop_serving_peers(
        name="End the copying between Sparks",
        lease=run_state.current_lease(),
        stale=run_state.stale_leases(ending=True),
    )
