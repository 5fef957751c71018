"""Snapshots of a Spark that is exactly in its desired state, for tests to change."""

import hashlib
import json
from typing import Any

from a_spark import pins_for, spark

from lockstep.drift.compare import Difference
from lockstep.drift.hosts import HostSnapshot
from lockstep.drift.report import Report, judge
from lockstep.drift.subjects import all_expectations, environments
from lockstep.host.desired_state import DesiredState
from lockstep.host.specs import TREES, engine_check_hash
from lockstep.resources.fact_comparison import SubjectView

KEY = 32 * b"k"
# Values for items of which the inventory demands a range.
_SHOWN = {
    ("DGX OS", "DGX_SWBUILD_VERSION"): "7.5.0",
    ("memory", "MemTotal GiB"): "119.7",
    ("clock offset", "seconds"): "0.0",
}


def host(name: str = "spark1", **data: object) -> DesiredState:
    """A host with the defaults of group data, and ``data`` in place of some of it."""
    plan = spark(name, **data)
    return DesiredState(plan, pins_for(plan))


def perfect(desired_state: DesiredState) -> dict[str, Any]:
    """The snapshot of a host that shows every desired value."""
    images: dict[str, Any] = {
        digest: {"version": "0.19.2", "faults": []} for digest in desired_state.engine_images
    }
    check: dict[str, Any] = {"version": "0.19.2", "faults": []}
    spec: dict[str, Any] = desired_state.engine_spec or dict.fromkeys(("current", "python", *TREES))
    trees = {name: spec[name] for name in TREES if spec[name]}
    origins = {name: {"url": f"file://{spec['home']}/{name}"} for name in trees}
    engines = {
        "check": check,
        "images": images,
        "current": desired_state.engine_id if desired_state.engine_spec else None,
        "unfinished": False,
        "commits": {name: tree["commit"] for name, tree in trees.items()},
        "environment": {"python": spec["python"], "distributions": {}, "origins": origins},
    }
    questions = desired_state.image_questions
    for digest, record in images.items():
        record["asked"] = hashlib.sha256(questions[digest].encode()).hexdigest()
    if desired_state.engine_spec:
        check["asked"] = engine_check_hash(desired_state.engine_spec)
    facts: dict[str, dict[str, str]] = {"deployed": {"number": "1"}}
    for item in all_expectations(desired_state, SubjectView({}, KEY)):
        if not item.if_there or item.kind not in ("driver", "restart key", "hub token mode"):
            value = _SHOWN.get((item.kind, item.item), item.value)
            facts.setdefault(item.kind, {})[item.item] = value
    # The diff derives these kinds from the answers.
    for kind in environments.facts(desired_state, engines):
        facts.pop(kind, None)
    return {"facts": facts, "faults": {}, "answers": {"environments": engines}}


def snapshot_copy(snapshot: dict[str, Any]) -> Any:
    """A copy of a snapshot, to be changed freely."""
    return json.loads(json.dumps(snapshot))


def diff_report(*pairs: tuple[DesiredState, dict[str, Any] | None]) -> Report:
    """The report of a diff of these hosts; None is a host that does not answer."""
    host_snapshots = [
        HostSnapshot(
            desired_state.plan.name, snapshot, "" if snapshot else "no connection: timed out"
        )
        for desired_state, snapshot in pairs
    ]
    return judge("test", [desired_state for desired_state, _ in pairs], host_snapshots, key=KEY)


def difference_keys(report: Report) -> list[tuple[str, str, str]]:
    """The (host, kind, item) of every difference."""
    return [(item.host, item.kind, item.item) for item in report.differences]


def only(report: Report) -> Difference:
    """The only difference of a report; fails when there are more."""
    assert len(report.differences) == 1, report.differences
    return report.differences[0]
