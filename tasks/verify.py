"""13. Read the host's state back, which the closing table shows, and record what it is."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks.operations import generations
from lockstep.tasks.operations import verify as operations


@deploy("Verify")
def verify() -> None:
    """Versions, units, what is hot, what starts at boot, addresses."""
    operations.read_back(name="Read back the state of the host")
    generations.recorded(name="Record this generation")
