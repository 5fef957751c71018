"""A host's clusters in `switch.sh status`: members, present run, end of the last run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lockstep.onhost.cluster import runs
from lockstep.onhost.core import config, output, terminal


def of_target(host: config.Host, target: config.Target) -> str | None:
    """Who answers for a rank that answers nobody; None for every other target."""
    cluster = host.cluster(target.name)
    if cluster is None or cluster.rank == 0:
        return None
    return f"rank {cluster.rank} of {len(cluster.members)}; {cluster.first.name} answers"


def as_json(host: config.Host, groups: dict[str, runs.Group]) -> dict[str, Any]:
    """Cluster → rank, members, and its last run since boot (null: none)."""
    return {
        name: {
            "rank": cluster.rank,
            "members": [member.name for member in cluster.members],
            "run": asdict(groups[name]) if name in groups else None,
        }
        for name, cluster in host.clusters.items()
    }


def lines(clusters: dict[str, Any], now: float) -> list[str]:
    """One line per cluster that has run since boot, and one for the reason of its last end."""
    found = []
    for name, cluster in clusters.items():
        run = cluster["run"]
        if run is None:
            continue
        hot = run["state"] == runs.HOT
        when = terminal.since(run["since"] if hot else run["ended"], now)
        members = ", ".join(cluster["members"])
        words = runs.WORDS[run["state"]]
        found.append(f"cluster {name} ({members}): {run['target']} {words} since {when}")
        if hot and run["heard"] is not None:
            age = output.duration(max(0.0, now - run["heard"]))
            what = f"{cluster['members'][0]} was heard" if cluster["rank"] else "a token came"
            found.append(f"  {what} {age} ago")
        silent = {who: said for who, said in run["members"].items() if hot and said != "hot"}
        found += [f"  {who}: {said}" for who, said in silent.items()]
        if run["reason"]:
            again = f"started again {len(run['starts'])} times; before: " if hot else ""
            found.append(f"  {again}{run['reason']}")
    return found
