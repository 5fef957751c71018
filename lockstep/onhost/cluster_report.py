"""What a member says of itself to whoever switches or watches."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.onhost import (
        cluster_groups,
        cluster_part,
        cluster_work,
        common,
        lock,
        phases,
        units,
    )
else:
    import cluster_groups
    import cluster_part
    import cluster_work
    import common
    import lock
    import phases
    import units

Answer = dict[str, Any]


def report(
    host: common.Host,
    paths: common.Paths,
    part: cluster_part.Part | None,
    work: cluster_work.Work | None,
    read: int,
) -> Answer:
    """What is up, what is under way, and the lines of that from number `read` on."""
    shown = units.show(target.unit for target in host.targets.values())
    holder = lock.holder(paths.run / "switch.lock")
    groups = cluster_groups.load(paths)
    return {
        "switch": part.switch if part else None,
        "states": {target.name: shown[target.unit].state for target in host.targets.values()},
        "busy": work is not None and work.busy,
        "ok": work.ok if work else None,
        "problem": work.problem if work else "",
        "lines": work.lines[read:] if work else [],
        "locked": str(holder) if holder else None,
        "groups": {name: asdict(group) for name, group in groups.items()},
    }


def why(host: common.Host, started: str | None, found: Answer) -> list[str]:
    """Why the target that was started here is no good; [] while all is well."""
    if started is None:
        return []
    name = host.target(started).unit
    if not found["busy"] and found["states"][started] not in ("hot", "loading"):
        unit = units.show([name])[name]
        ended = "it ended by itself" if unit.state == "off" else unit.failure
        return [f"{name}: {ended}", *phases.reason(units.last_lines(name, 60))]
    return []
