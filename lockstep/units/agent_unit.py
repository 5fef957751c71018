"""The unit of the agent that starts, watches and stops this host's rank of its clusters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockstep.files.managed_file import (
    AGENT_UNIT,
    STATE,
    ManagedFile,
    command,
    peer_identity,
    unit_file,
)
from lockstep.files.programs import modules_with_imports
from lockstep.inventory.cluster import ClusterMembers
from lockstep.onhost.access import peer_tls
from lockstep.units.restart_key import with_restart_key

#: The agent's notes on its clusters' last runs (`onhost/core/layout.py`, `Paths.clusters` and
#: `clusters_on_disk`). Without the agent they are worth nothing, and must not start a model one
#: day.
RECORDS = ("/run/lockstep/clusters.json", "/var/lib/lockstep-cluster/clusters.json")


def agent_units(host: str, groups: Sequence[ClusterMembers]) -> tuple[ManagedFile, ...]:
    """Return the agent's unit, enabled at boot; () on a host that is a member of no cluster."""
    if not groups:
        return ()
    members = {group.name: (group.rank, group.data.port, group.members) for group in groups}
    text = with_restart_key(
        "units/cluster.service.j2",
        contents={"clusters": repr(members), "programs": modules_with_imports("cluster.agent")},
        names=list(members),
        start=command("cluster-agent"),
        state=STATE,
        credential=peer_tls.credential_name(peer_tls.AGENT),
        identity=peer_identity(peer_tls.AGENT, host),
        addresses=addresses_of(groups),
    )
    return (unit_file(AGENT_UNIT, text),)


def addresses_of(groups: Iterable[ClusterMembers]) -> list[str]:
    """Return the addresses at which the members of these clusters are asked."""
    every = (
        address for group in groups for member in group.members for address in member.addresses
    )
    return list(dict.fromkeys(every))
