"""10. `switch.sh`: one hot model, from a phone."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.files.managed_file import AGENT_UNIT
from lockstep.onhost.system.gpu import CAP_UNIT
from lockstep.units import memory_unit
from tasks import run
from tasks.operations import cluster_rollout
from tasks.operations import services as operations


@deploy("Switch")
def switch() -> None:
    """The switch script, its aliases, who may run it, and what watches over the hot model."""
    # A member of a cluster has the agent besides.
    this = run.current()
    groups, cap = this.plan.groups, this.plan.settings.gpu.max_clock_mhz
    watching = [*this.timers, memory_unit.UNIT, *([AGENT_UNIT] if groups else [])]
    watching += [CAP_UNIT] if cap else []
    operations.written(name="Write switch.sh and what watches", stage="switch")
    operations.in_force(
        name="Start what watches",
        units=[*watching, *this.boot_units],
        stage="switch",
        enabled=watching,
        next_boot=this.boot_units,
    )
    if groups:
        cluster_rollout.brought_back(name="Start the cluster's model again")
