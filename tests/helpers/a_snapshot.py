"""Snapshots of a Spark that is exactly as inventory and record ask, to be bent by tests."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from a_spark import pins_for, spark

from lockstep.drift.compare import Difference
from lockstep.drift.hosts import Taken
from lockstep.drift.report import Report, judge
from lockstep.drift.subjects import environments, expected
from lockstep.drift.subjects.kind import Seen
from lockstep.host.intended import Intended
from lockstep.host.specs import TREES, check_wanted

KEY = 32 * b"k"
# What is shown where the inventory demands a range and not a value.
_SHOWN = {
    ("DGX OS", "DGX_SWBUILD_VERSION"): "7.5.0",
    ("memory", "MemTotal GiB"): "119.7",
    ("clock offset", "seconds"): "0.0",
}


def host(name: str = "spark1", **data: object) -> Intended:
    """A host with the defaults of group data, and ``data`` in place of some of it."""
    plan = spark(name, **data)
    return Intended(plan, pins_for(plan))


def perfect(this: Intended) -> dict[str, Any]:
    """The snapshot of a host that shows everything that is asked of it."""
    images: dict[str, Any] = {
        digest: {"version": "0.19.2", "faults": []} for digest in this.engine_images
    }
    check: dict[str, Any] = {"version": "0.19.2", "faults": []}
    spec: dict[str, Any] = this.engine_spec or dict.fromkeys(("current", "python", *TREES))
    trees = {name: spec[name] for name in TREES if spec[name]}
    origins = {name: {"url": f"file://{spec['home']}/{name}"} for name in trees}
    engines = {
        "check": check,
        "images": images,
        "current": this.engine_id if this.engine_spec else None,
        "unfinished": False,
        "commits": {name: tree["commit"] for name, tree in trees.items()},
        "environment": {"python": spec["python"], "distributions": {}, "origins": origins},
    }
    questions = this.image_questions
    for digest, record in images.items():
        record["asked"] = hashlib.sha256(questions[digest].encode()).hexdigest()
    if this.engine_spec:
        check["asked"] = check_wanted(this.engine_spec)
    facts: dict[str, dict[str, str]] = {"deployed": {"number": "1"}}
    for item in expected(this, Seen({}, KEY)):
        if not item.if_there or item.kind not in ("driver", "generation", "hub token mode"):
            value = _SHOWN.get((item.kind, item.item), item.value)
            facts.setdefault(item.kind, {})[item.item] = value
    # Derived from the answers.
    for kind in environments.facts(this, engines):
        facts.pop(kind, None)
    return {"facts": facts, "faults": {}, "answers": {"environments": engines}}


def copied(snapshot: dict[str, Any]) -> Any:
    """A snapshot that can be changed without changing the first one."""
    return json.loads(json.dumps(snapshot))


def judged(*pairs: tuple[Intended, dict[str, Any] | None]) -> Report:
    """What a diff of these hosts says; None is a host that does not answer."""
    taken = [
        Taken(this.plan.name, snapshot, "" if snapshot else "no connection: timed out")
        for this, snapshot in pairs
    ]
    return judge("test", [this for this, _ in pairs], taken, key=KEY)


def named(report: Report) -> list[tuple[str, str, str]]:
    """(host, kind, item) of every difference."""
    return [(item.host, item.kind, item.item) for item in report.differences]


def only(report: Report) -> Difference:
    """The one difference."""
    assert len(report.differences) == 1, report.differences
    return report.differences[0]
