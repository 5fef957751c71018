"""The unit of the agent that starts, watches and stops this host's rank of its clusters."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.files.managed_file import (
    AGENT_UNIT,
    CONFIGURATION,
    STATE,
    SYSTEMD,
    ManagedFile,
    command,
)
from lockstep.files.programs import closure
from lockstep.inventory.cluster import Group
from lockstep.units.restart_key import keyed

#: What the agent notes about its clusters' last runs (`onhost/core/config.py`, `Paths.groups` and
#: `groups_kept`); without the agent it is worth nothing, and must not start a model one day.
RECORDS = ("/run/lockstep/clusters.json", "/var/lib/lockstep-cluster/groups.json")


def key_path(cluster: str) -> str:
    """Where a member has the key by which it knows the others; mode 0600."""
    return f"{CONFIGURATION}/secrets/cluster-{cluster}.key"


def agent_units(groups: Iterable[Group]) -> tuple[ManagedFile, ...]:
    """The agent's unit, enabled at boot; () on a host that is a member of no cluster.

    It finds the key of cluster NAME as credential `cluster-NAME`.
    """
    found = {group.name: group for group in groups}
    if not found:
        return ()
    start = command("cluster-agent")
    members = {name: (group.rank, group.data.port, group.members) for name, group in found.items()}
    contents = {
        "clusters": repr(members),
        "programs": closure("cluster.agent"),
    }
    every = (
        address
        for group in found.values()
        for member in group.members
        for address in member.addresses
    )
    text = keyed(
        "units/cluster.service.j2",
        contents=contents,
        names=list(found),
        start=start,
        state=STATE,
        keys={f"cluster-{name}": key_path(name) for name in found},
        addresses=list(dict.fromkeys(every)),
    )
    return (ManagedFile(f"{SYSTEMD}/{AGENT_UNIT}", text, check="unit", stage="switch"),)
