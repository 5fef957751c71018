"""A build or a deploy that is killed at a random point leaves the engine in use as it was."""

from __future__ import annotations

from cutting import Cutter
from stack import Stack


def test_what_is_killed_never_breaks_the_engine_in_use(deployed: Stack) -> None:
    """One point of `make cuts`, which has ten: a stage of a new engine's build."""
    counts = Cutter(deployed, seed=8).run(1, kinds=("build",))
    assert (counts.points, counts.broken) == (1, [])
    assert deployed.good_deploy().changed == set()
