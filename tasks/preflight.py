"""Preflight: an impossible deploy is refused on all hosts, before the first change on any."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks import interrupted_models, run_state


@deploy("Preflight")
def preflight() -> None:
    """Plan all hosts, resolve what moves, and judge hardware, driver, disk, ports and sources."""
    run_state.begin_run()
    interrupted_models.report_interrupted_models()
