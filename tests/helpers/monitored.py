"""Hosts with monitoring, and what a deploy writes on them."""

from __future__ import annotations

from typing import Any

from a_spark import pins_for, spark

from lockstep.host.intended import Intended
from lockstep.inventory.cluster_join import joined

ON = {"enabled": True}


def hosts(*monitoring: dict[str, Any], **data: Any) -> list[Intended]:
    """Hosts with these keys of monitoring, on one fast link."""
    plans = [
        spark(f"spark-{number}", fabric_address=f"10.77.0.{number}", monitoring=keys, **data)
        for number, keys in enumerate(monitoring, start=1)
    ]
    return [Intended(plan, pins_for(plan)) for plan in joined(plans, "site.py")]


def written(this: Intended, name: str) -> str:
    """The text of a file by its name or whole path; "" where it is not written."""
    return next((each.text for each in this.all_files if f"/{each.path}".endswith(f"/{name}")), "")
