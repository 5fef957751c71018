"""Turns of hosts within an operation that pyinfra runs on all of them at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from pyinfra import host, state
from pyinfra.api.arguments import pop_global_arguments

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


def is_interruption_forbidden() -> bool:
    """Tell whether a host whose hot model would be interrupted is left as it is."""
    return bool(os.environ.get(KEEP_HOT))


def option_against_turns(hosts: Sequence[Any]) -> str | None:
    """Return the option, data key or default of pyinfra that leaves no turns to these hosts."""
    for option in _IN_ONE_GO:
        if option in sys.argv:
            return option
    for spark in hosts:
        every, _ = pop_global_arguments(state, spark, {})
        for key in ("_serial", "_run_once"):
            if every[key]:
                return f"{key} in the data of {spark.name}"
        # Without the option, pyinfra takes twenty for each processor of this machine.
        at_once = min(filter(None, (state.config.PARALLEL, every["_parallel"])))
        if at_once < len(hosts):
            return f"at most {at_once} hosts at a time (--parallel)"
    return None
