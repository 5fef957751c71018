"""Exchange of the keys that several hosts share, before anything that reads one starts."""

from __future__ import annotations

from pyinfra import host, state
from pyinfra.api import deploy

from lockstep.tasks.operations import keys_shared_by_hosts as operations
from lockstep.tasks.run import run_state


@deploy("Keys")
def share_keys() -> None:
    """Make each key where no host has it, and copy it from a host that has it."""
    givers = [run_state.key_giver(key) for key in run_state.current_desired_state().shared_keys]
    if host.name in givers:
        operations.make_keys(name="Make keys for several hosts once")
    if any(giver != host.name for giver in givers):
        operations.copy_shared_keys(name="Take keys over from the host that made them")
    if len(state.inventory) > 1:
        operations.copy_peers_key_changes(name="Take over what other hosts know of persons' keys")
