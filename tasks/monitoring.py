"""Monitoring: node_exporter, Prometheus and Alertmanager."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.monitoring import stack
from lockstep.tasks.operations import base_setup
from lockstep.tasks.operations import services as operations
from lockstep.tasks.run import run_state


@deploy("Monitoring")
def monitoring() -> None:
    """Deploy configuration and units after the packages; remove them if the inventory has none."""
    desired_state = run_state.current_desired_state()
    leaving = [name for name in stack.PACKAGED_UNITS if name not in desired_state.packages]
    if leaving:
        base_setup.purge_packages(
            name="Purge packages that monitoring brought",
            units={name: stack.PACKAGED_UNITS[name] for name in leaving},
        )
    units = stack.units(desired_state.plan)
    if units:
        operations.write_stage_files(name="Write monitoring", stage="monitoring")
        operations.restart_outdated(
            name="Run monitoring", units=units, stage="monitoring", at_boot=units
        )
