"""Exchanges the key among the members of a cluster, before anything of it starts."""

from __future__ import annotations

from pyinfra.api import deploy

from tasks import run
from tasks.operations import cluster as operations


@deploy("Cluster")
def cluster() -> None:
    """One key per cluster, made on its first member."""
    groups = run.current().plan.groups
    if not groups:
        return
    if any(group.rank == 0 for group in groups):
        operations.keys_made(name="Make the cluster's key once")
    if any(group.rank != 0 for group in groups):
        operations.keys_carried(name="Take the key over from the first member")
