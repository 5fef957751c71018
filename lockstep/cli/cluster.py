"""`lockstep cluster`: Sparks that serve one model together."""

from __future__ import annotations

import click

from lockstep.cli.cluster_check import check
from lockstep.cli.cluster_status import status


@click.group()
def cluster() -> None:
    """Groups of Sparks that serve one model together."""


cluster.add_command(check)
cluster.add_command(status)
