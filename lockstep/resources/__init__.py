"""Resources: what a deploy answers for on a host, one module per kind of thing.

A module has what is wanted, how a difference is shown and mended, and the commands that a deploy
mends it with. Deploy, `--dry` and `diff` ask the same reader and decide by the same comparison.
"""

from __future__ import annotations

from typing import Any

from lockstep.files.remote_exec import reader_name
from lockstep.host.desired_state import DesiredState
from lockstep.resources import (
    accounts,
    fabric,
    files,
    firewall,
    kernel_settings,
    packages,
    units,
)

RESOURCES = (packages, kernel_settings, accounts, files, units, firewall, fabric)


def questions(desired_state: DesiredState) -> dict[str, Any]:
    """Return the questions of a deploy to one host: only about the resources that it wants."""
    return {
        reader_name(reader): {**question, "key": files.KEY, "others": False}
        for resource in RESOURCES
        for reader, question in resource.questions(desired_state).items()
    }
