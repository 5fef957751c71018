"""Exchanges the keys that several hosts have alike, before anything that reads one starts."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import deploy

from tasks import run
from tasks.operations import shared_keys as operations


@deploy("Keys")
def shared_keys() -> None:
    """Each key is made on the first host that has it."""
    keys = run.current().shared_keys
    if any(key.hosts[0] == host.name for key in keys):
        operations.made(name="Make keys for several hosts once")
    if any(key.hosts[0] != host.name for key in keys):
        operations.carried(name="Take keys over from the host that made them")
