"""Keys that several hosts have alike, as by which the members of a cluster know each other.

Each is made on one host and goes from there to the others through this process' memory only: no
command line, no log and no file here ever holds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyinfra import host, state
from pyinfra.api import operation
from pyinfra.connectors.util import CommandOutput

from lockstep.host.shared_keys import SharedKey
from tasks import remote, run
from tasks.facts import host as facts
from tasks.remote import Commands


@operation()
def made() -> Commands:
    """Make each key whose first host this is, once."""
    keys = run.current().shared_keys
    missing = [key for key in keys if key.hosts[0] == host.name and not _hash(host.name, key)]
    for key in missing:
        yield remote.words(key.make)
    if missing:
        yield from _restarted(missing)
    else:
        host.noop("no key is to be made here")


@operation()
def carried() -> Commands:
    """Give this host the keys that are made on others."""
    changed = []
    for key in run.current().shared_keys:
        if key.hosts[0] == host.name:
            continue
        mine = _hash(host.name, key)
        first = _first(key)
        if first is None:
            if mine is None:
                yield from remote.refuse(
                    f"the {key.what} is to come from {key.hosts[0]}, which is not part of this "
                    f"run. Remedy: deploy to {', '.join(key.hosts)} together."
                )
            continue
        if mine is None or mine != _hash(first.name, key):
            changed.append(key)
            command = Carried.of(key.take)
            command.first, command.path = first, key.path
            yield command
    if changed:
        yield from _restarted(changed)
    else:
        host.noop("the keys are those of the hosts that made them")


def _restarted(keys: Iterable[SharedKey]) -> Commands:
    """What runs must not go on with the key of before."""
    states = facts.ask("units") or {}
    units = dict.fromkeys(unit for key in keys for unit in key.units)
    running = [unit for unit in units if states.get(unit, {}).get("ActiveState") == "active"]
    if running:
        yield remote.words(["systemctl", "restart", *running])


def _first(key: SharedKey) -> Any:
    """The host that makes a key; None where it is no part of this run."""
    first = state.inventory.get_host(key.hosts[0])
    return first if first in state.active_hosts else None


class Carried(remote.Changing):
    """Writes what another host's file holds; nothing of it is shown."""

    first: Any = None
    path: str = ""

    def run(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Read it there, write it here."""
        done, output = remote.run_on(self.first, ["cat", self.path], shown=False)
        if not done:
            return remote.failed(
                host, f"{self.first.name} has no {self.path} to give"
            ), CommandOutput([])
        connector_arguments["_stdin"] = [output.stdout + "\n"]
        return super().run(state, host, connector_arguments)


def _hash(name: str, key: SharedKey) -> str | None:
    return key.seal(name, facts.ask("files", state.inventory.get_host(name)))
