"""The key by which the members of a cluster know each other.

It is made on rank 0 and goes from host to host through this process' memory only: no command
line, no log and no file here ever holds it.
"""

from __future__ import annotations

from typing import Any

from pyinfra import host, state
from pyinfra.api import operation
from pyinfra.connectors.util import CommandOutput

from lockstep.files.managed_file import AGENT_UNIT, command
from lockstep.inventory.cluster import Group
from lockstep.units.agent_unit import key_path
from tasks import remote, run
from tasks.facts import host as facts
from tasks.remote import Commands

_PROGRAM = command("make-secrets")


@operation()
def keys_made() -> Commands:
    """Make the key of each cluster whose rank 0 this host is, once, in a file of mode 0600."""
    groups = run.current().plan.groups
    missing = [group for group in groups if group.rank == 0 and not _hash(host.name, group)]
    for group in missing:
        yield remote.words([*_PROGRAM, key_path(group.name)])
    if missing:
        yield from _agent_restarted()
    else:
        host.noop("no key is to be made here")


@operation()
def keys_carried() -> Commands:
    """Give this host the key of rank 0, where it is a member of a higher rank."""
    changed = False
    for group in run.current().plan.groups:
        if group.rank == 0:
            continue
        mine = _hash(host.name, group)
        first = _first(group)
        if first is None:
            if mine is None:
                yield from remote.refuse(
                    f"the key of cluster {group.name} is to come from {group.members[0].name}, "
                    "which is not part of this run. Remedy: deploy to all members of the cluster."
                )
            continue
        if mine is None or mine != _hash(first.name, group):
            changed = True
            carried = Carried.of([*_PROGRAM, "--take", key_path(group.name)])
            carried.first, carried.path = first, key_path(group.name)
            yield carried
    if changed:
        yield from _agent_restarted()
    else:
        host.noop("the keys are those of rank 0")


def _agent_restarted() -> Commands:
    """An agent that runs must not go on with the key of before."""
    states = facts.ask("units") or {}
    if states.get(AGENT_UNIT, {}).get("ActiveState") == "active":
        yield remote.words(["systemctl", "restart", AGENT_UNIT])


def _first(group: Group) -> Any:
    """Rank 0 of a cluster; None where it is no part of this run."""
    first = state.inventory.get_host(group.members[0].name)
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


def _hash(name: str, group: Group) -> str | None:
    """SHA-256 of the key on a host; None where it has none that only root can read."""
    found = facts.ask("files", state.inventory.get_host(name))
    have = found[key_path(group.name)] if found else None
    if have is None or (have["mode"], have["owner"], have["group"]) != ("0600", "root", "root"):
        return None
    return str(have["sha256"])
