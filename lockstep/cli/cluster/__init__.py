"""`lockstep cluster`: Sparks that serve one model together."""

from __future__ import annotations

import click

from lockstep.cli.common import LazyGroup

_COMMANDS = ("check", "status")


@click.command(cls=LazyGroup, modules={name: f"lockstep.cli.cluster.{name}" for name in _COMMANDS})
def cluster() -> None:
    """Check clusters: Sparks that serve one model together."""
