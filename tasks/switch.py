"""10. `switch.sh`: one hot model, from a phone."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.wedgewatch import TIMER
from tasks.operations import services as operations


@deploy("Switch")
def switch() -> None:
    """The switch script, its aliases, who may run it, and the watch over the hot model."""
    operations.written(name="Write switch.sh and the wedge watch", stage="switch")
    operations.in_force(
        name="Start the wedge watch", units=[TIMER], stage="switch", enabled=[TIMER]
    )
