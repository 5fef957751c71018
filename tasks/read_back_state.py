"""Reading back of the host's state, which the closing table shows, and its record."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks.operations import closing_table as operations
from lockstep.tasks.operations import generations


@deploy("Verify")
def read_back_state() -> None:
    """Read back versions, units, the hot model, units that start at boot, and addresses."""
    operations.collect_closing_table(name="Read back the state of the host")
    generations.record_generation(name="Record this generation")
