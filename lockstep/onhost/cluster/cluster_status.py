"""A host's clusters in `switch.sh status`: members, present run, end of the last run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lockstep.onhost.cluster import run_records
from lockstep.onhost.core import config, event_lines, terminal_lines


def answering_member_text(host: config.HostConfig, model: config.Model) -> str | None:
    """Name the member that answers for a rank that does not; None for every other model."""
    cluster = host.cluster_of_model(model.name)
    if cluster is None or cluster.rank == 0:
        return None
    return f"rank {cluster.rank} of {len(cluster.members)}; {cluster.first_member.name} answers"


def as_json(
    host: config.HostConfig, cluster_runs: dict[str, run_records.ClusterRun]
) -> dict[str, Any]:
    """Return rank, members, and the last run since boot (null: none) of each cluster."""
    return {
        name: {
            "rank": cluster.rank,
            "members": [member.name for member in cluster.members],
            "run": asdict(cluster_runs[name]) if name in cluster_runs else None,
        }
        for name, cluster in host.clusters.items()
    }


def status_lines(clusters: dict[str, Any], now: float) -> list[str]:
    """Return a line per cluster that has run since boot, and one for the reason of its last end."""
    lines = []
    for name, cluster in clusters.items():
        run = cluster["run"]
        if run is None:
            continue
        hot = run["state"] == run_records.HOT
        when = terminal_lines.moment_with_age(run["since"] if hot else run["end_time"], now)
        members = ", ".join(cluster["members"])
        words = run_records.WORDS[run["state"]]
        lines.append(f"cluster {name} ({members}): {run['model']} {words} since {when}")
        if hot and run["sign_time"] is not None:
            age = event_lines.duration(max(0.0, now - run["sign_time"]))
            contact = f"{cluster['members'][0]} was heard" if cluster["rank"] else "a token came"
            lines.append(f"  {contact} {age} ago")
        silent = {
            member: member_state
            for member, member_state in run["members"].items()
            if hot and member_state != "hot"
        }
        lines += [f"  {member}: {member_state}" for member, member_state in silent.items()]
        if run["reason"]:
            again = f"started again {len(run['starts'])} times; before: " if hot else ""
            lines.append(f"  {again}{run['reason']}")
    return lines
