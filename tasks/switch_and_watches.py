"""The script `switch.sh`, for one hot model from a phone, and the watches of the hot model."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks.operations import cluster_rollout
from lockstep.tasks.operations import services as operations
from lockstep.tasks.run import run_state


@deploy("Switch")
def switch_script() -> None:
    """Deploy the switch script, its aliases, its sudo rights, and the hot model's watches."""
    desired_state = run_state.current_desired_state()
    operations.write_stage_files(name="Write switch.sh and what watches", stage="switch")
    operations.restart_outdated(
        name="Start what watches",
        units=[*desired_state.watch_units, *desired_state.boot_units],
        stage="switch",
        at_boot=desired_state.watch_units,
        next_boot=desired_state.boot_units,
    )
    if desired_state.plan.groups:
        cluster_rollout.start_cluster(name="Start the cluster's model again")
