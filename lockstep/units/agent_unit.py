"""The unit of the agent that starts, watches and stops this host's rank of its clusters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockstep.files.managed_file import (
    AGENT_UNIT,
    CONFIGURATION,
    STATE,
    ManagedFile,
    command,
    unit_file,
)
from lockstep.files.programs import modules_with_imports
from lockstep.inventory.cluster import ClusterMembers
from lockstep.units.restart_key import with_restart_key

#: The agent's notes on its clusters' last runs (`onhost/core/layout.py`, `Paths.clusters` and
#: `clusters_on_disk`). Without the agent they are worth nothing, and must not start a model one
#: day.
RECORDS = ("/run/lockstep/clusters.json", "/var/lib/lockstep-cluster/clusters.json")


def key_path(cluster: str) -> str:
    """Return the path of the key by which a member knows the others; mode 0600."""
    return f"{CONFIGURATION}/secrets/cluster-{cluster}.key"


def agent_units(groups: Sequence[ClusterMembers]) -> tuple[ManagedFile, ...]:
    """Return the agent's unit, enabled at boot; () on a host that is a member of no cluster.

    The agent finds the key of cluster NAME as credential `cluster-NAME`.
    """
    if not groups:
        return ()
    members = {group.name: (group.rank, group.data.port, group.members) for group in groups}
    text = with_restart_key(
        "units/cluster.service.j2",
        contents={"clusters": repr(members), "programs": modules_with_imports("cluster.agent")},
        names=list(members),
        start=command("cluster-agent"),
        state=STATE,
        keys={f"cluster-{name}": key_path(name) for name in members},
        addresses=addresses_of(groups),
    )
    return (unit_file(AGENT_UNIT, text),)


def addresses_of(groups: Iterable[ClusterMembers]) -> list[str]:
    """Return the addresses at which the members of these clusters are asked."""
    every = (
        address for group in groups for member in group.members for address in member.addresses
    )
    return list(dict.fromkeys(every))
