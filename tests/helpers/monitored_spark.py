"""Hosts with monitoring, and the files that a deploy writes on them."""

from __future__ import annotations

from typing import Any

from a_spark import pins_for, spark

from lockstep.host.desired_state import DesiredState
from lockstep.inventory.cluster_join import join_clusters

ON = {"enabled": True}


def hosts(*monitoring: dict[str, Any], **data: Any) -> list[DesiredState]:
    """Hosts with these keys of monitoring, on one fast link."""
    plans = [
        spark(f"spark-{number}", fabric_address=f"10.77.0.{number}", monitoring=keys, **data)
        for number, keys in enumerate(monitoring, start=1)
    ]
    return [DesiredState(plan, pins_for(plan)) for plan in join_clusters(plans, "site.py")]


def file_text(desired_state: DesiredState, name: str) -> str:
    """The text of a file by its name or whole path; "" where it is not written."""
    return next(
        (file.text for file in desired_state.all_files if f"/{file.path}".endswith(f"/{name}")), ""
    )
