"""Hosts with monitoring, and the files that a deploy writes on them."""

from typing import Any

from a_spark import pins_for, spark

from lockstep.host.desired_state import DesiredState
from lockstep.inventory.cluster_join import join_clusters

ON = {"enabled": True}


def hosts(*monitoring: dict[str, Any], **data: Any) -> list[DesiredState]:
    """Hosts with these keys of monitoring, on one fast link."""
    return hosts_with("monitoring", *monitoring, **data)


def hosts_with(part: str, *keys: dict[str, Any], **data: Any) -> list[DesiredState]:
    """Hosts on one fast link, each with its keys of that part of the inventory."""
    plans = []
    for number, own in enumerate(keys, start=1):
        address = f"10.77.0.{number}"
        plans.append(spark(f"spark-{number}", fabric_address=address, **{part: own}, **data))
    return [DesiredState(plan, pins_for(plan)) for plan in join_clusters(plans, "site.py")]


def file_text(desired_state: DesiredState, name: str) -> str:
    """The text of a file by its name or whole path; "" where it is not written."""
    return next(
        (file.text for file in desired_state.all_files if f"/{file.path}".endswith(f"/{name}")), ""
    )
