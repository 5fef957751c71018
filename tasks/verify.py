"""12. Read back what is there; the closing table is made of nothing else."""

from __future__ import annotations

from pyinfra.api import deploy

from tasks.operations import verify as operations


@deploy("Verify")
def verify() -> None:
    """Versions, units, what is hot, what starts at boot, addresses."""
    operations.read_back(name="Read back the state of the host")
