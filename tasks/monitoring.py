"""13. Monitoring: what tells of a host, and who keeps it."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.monitoring import stack
from lockstep.tasks import run
from lockstep.tasks.operations import services as operations
from lockstep.tasks.operations import system


@deploy("Monitoring")
def monitoring() -> None:
    """Configuration and units, after the packages; taken out of the inventory, these leave."""
    this = run.current()
    leaving = [name for name in stack.PACKAGED_UNITS if name not in this.packages]
    if leaving:
        system.purged(
            name="Purge packages that monitoring brought",
            units={name: stack.PACKAGED_UNITS[name] for name in leaving},
        )
    units = stack.units(this.plan)
    if units:
        operations.written(name="Write monitoring", stage="monitoring")
        operations.in_force(name="Run monitoring", units=units, stage="monitoring", enabled=units)
