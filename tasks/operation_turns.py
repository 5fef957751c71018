"""Turns of hosts within an operation that pyinfra runs on all of them at once."""

from __future__ import annotations

import os
import sys

from pyinfra import host, state

from lockstep.deploy.host_turns import HostTurns
from lockstep.fleet.hosts import KEEP_HOT

_IN_ONE_GO = ("--serial", "--no-wait")

_turns: dict[str, HostTurns] = {}


def turns_of_operation() -> HostTurns:
    """Return the turns of the operation that is being executed."""
    operation = str(host.executing_op_hash)
    if operation not in _turns:
        names = [
            spark.name
            for spark in state.inventory
            if spark in state.active_hosts and operation in state.ops[spark]
        ]
        _turns[operation] = HostTurns(names)
    return _turns[operation]


def is_hot_model_kept() -> bool:
    """Tell whether a host whose hot model would be interrupted is left as it is."""
    return bool(os.environ.get(KEEP_HOT))


def turn_obstacle(hosts: int) -> str | None:
    """Return the option, or the default of pyinfra, by which so many hosts could not take turns."""
    options = [option for option in _IN_ONE_GO if option in sys.argv]
    if not options and 0 < (at_once := state.config.PARALLEL) < hosts:
        # Without the option, pyinfra takes twenty for each processor of this machine.
        is_given = "--parallel" in sys.argv
        options = [
            f"--parallel {at_once}" if is_given else f"pyinfra's own {at_once} hosts at a time"
        ]
    return options[0] if options else None
