"""A build or a deploy that is killed at a random point leaves the engine in use as it was."""

from __future__ import annotations

from cutting import Cutter
from stack import Stack


def test_what_is_killed_never_breaks_the_engine_in_use(deployed: Stack) -> None:
    """Two points of `make cuts`, which has ten; the seed chooses those that end early."""
    counts = Cutter(deployed, seed=8).run(2, kinds=("build", "deploy"))
    assert (counts.points, counts.broken) == (2, [])
    assert deployed.good_deploy().changed == set()
