"""Preflight: an impossible deploy is refused on all hosts, before the first change on any."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks import interrupts, run


@deploy("Preflight")
def preflight() -> None:
    """Plan all hosts, resolve what moves, and judge hardware, driver, disk, ports and sources."""
    run.begin()
    interrupts.say()
