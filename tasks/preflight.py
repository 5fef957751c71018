"""Preflight: an impossible deploy is refused on all hosts, before the first change on any."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks import stop_announcement
from lockstep.tasks.run import run_state


@deploy("Preflight")
def preflight() -> None:
    """Plan all hosts, resolve what moves, and judge hardware, driver, disk, ports and sources."""
    run_state.begin_run()
    stop_announcement.announce_models_to_stop()
