"""10. `switch.sh`: one hot model, from a phone."""

from __future__ import annotations

from pyinfra.api import deploy

from tasks.operations import services as operations


@deploy("Switch")
def switch() -> None:
    """The switch script, its aliases, its targets and who may run it."""
    operations.written(name="Write switch.sh and its targets", stage="switch")
