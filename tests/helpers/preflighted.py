"""What preflight finds on a Spark as NVIDIA ships it, but for what a test says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from a_spark import healthy, pins_for, spark

from lockstep import preflight
from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan

NOW = 1_795_000_000.0
PLAN = spark()


def findings(plan: HostPlan = PLAN, **facts: Any) -> list[Finding]:
    """With these facts; of a mapping the rest stays as it is."""
    return preflight.findings(plan, pins_for(plan), _with(healthy(plan, NOW), facts), now=NOW)


def _with(facts: Any, changed: Any) -> Any:
    if not isinstance(facts, Mapping) or not isinstance(changed, Mapping):
        return changed
    return {**facts, **{key: _with(facts.get(key), value) for key, value in changed.items()}}
