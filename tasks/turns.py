"""Turns of hosts within an operation that pyinfra runs on all of them at once."""

from __future__ import annotations

import os
import sys

from pyinfra import host, state

from lockstep.deploy.turns import Turns
from lockstep.fleet.hosts import KEEP_HOT

_IN_ONE_GO = ("--serial", "--no-wait")

_turns: dict[str, Turns] = {}


def of_operation() -> Turns:
    """The turns of the operation that is being executed."""
    operation = str(host.executing_op_hash)
    if operation not in _turns:
        names = [
            each.name
            for each in state.inventory
            if each in state.active_hosts and operation in state.ops[each]
        ]
        _turns[operation] = Turns(names)
    return _turns[operation]


def keep_hot() -> bool:
    """Whether a host whose hot model would be interrupted is left as it is."""
    return bool(os.environ.get(KEEP_HOT))


def obstacle(hosts: int) -> str | None:
    """The option, or the habit of pyinfra's, by which so many hosts could not take turns."""
    options = [option for option in _IN_ONE_GO if option in sys.argv]
    if not options and 0 < (at_once := state.config.PARALLEL) < hosts:
        # Where nobody says, pyinfra takes twenty for each processor of this machine.
        given = "--parallel" in sys.argv
        options = [f"--parallel {at_once}" if given else f"pyinfra's own {at_once} hosts at a time"]
    return options[0] if options else None
