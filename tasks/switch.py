"""11. `switch.sh`: one hot model, from a phone."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks import run
from lockstep.tasks.operations import cluster_rollout
from lockstep.tasks.operations import services as operations


@deploy("Switch")
def switch() -> None:
    """The switch script, its aliases, who may run it, and what watches over the hot model."""
    this = run.current()
    operations.written(name="Write switch.sh and what watches", stage="switch")
    operations.in_force(
        name="Start what watches",
        units=[*this.watching, *this.boot_units],
        stage="switch",
        enabled=this.watching,
        next_boot=this.boot_units,
    )
    if this.plan.groups:
        cluster_rollout.brought_back(name="Start the cluster's model again")
