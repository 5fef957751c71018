"""What the end of a switch means for the groups on a member's record."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.onhost import cluster_groups, cluster_part, cluster_work, clusters, common
else:
    import cluster_groups
    import cluster_part
    import cluster_work
    import clusters
    import common


def committed(
    paths: common.Paths, host: common.Host, part: cluster_part.Part, hot: str | None
) -> None:
    """A switch is done: `hot` is hot here, and whatever else a group ran is not."""
    cluster = host.cluster(hot) if hot else None
    groups = cluster_groups.load(paths)
    for group in groups.values():
        # Who starts a group again after a fault has not decided against it.
        decided = part.user != cluster_work.WATCH and group.state != cluster_groups.STOPPED
        if decided and (cluster is None or group.cluster != cluster.name):
            reason = f"{part.user} switched to {part.wanted} on {part.asked_on}"
            cluster_groups.save(paths, group.over(cluster_groups.STOPPED, reason))
    if cluster is None or not hot:
        return
    new = cluster_groups.Group(cluster.name, hot, part.switch, heard=time.time())
    before = groups.get(cluster.name)
    if before is not None and part.user == cluster_work.WATCH:
        new = replace(new, starts=before.starts, reason=before.reason, ended=before.ended)
    cluster_groups.save(paths, new)


def owed(
    paths: common.Paths, cluster: clusters.Cluster, part: cluster_part.Part, reason: str
) -> None:
    """A group was hot before a switch that is off: rank 0 starts it again when all can."""
    group = cluster_groups.load(paths).get(cluster.name)
    if group is None:
        group = cluster_groups.Group(cluster.name, str(part.previous), part.switch)
    state = cluster_groups.ENDED if cluster.rank else cluster_groups.RECOVERING
    why = f"the switch to {part.wanted} was cut off: {reason}"
    cluster_groups.save(paths, group.over(state, why))
