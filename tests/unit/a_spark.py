"""One Spark as group_data/all.py describes it, with pins for everything that it asks for."""

from __future__ import annotations

import runpy
from pathlib import Path

from lockstep.inventory import HostPlan
from lockstep.inventory import plan as plan_of
from lockstep.pins import FilePin, GitPin, ImagePin, ModelPin, Pins, PythonPin
from lockstep.wanted import wanted

GIB = 1024**3
COMMIT = 40 * "c"
DIGEST = "sha256:" + 64 * "d"
_GROUP_DATA = Path(__file__).parents[2] / "group_data/all.py"


def spark(name: str = "spark1", **data: object) -> HostPlan:
    """A host with the defaults of group data, and ``data`` in place of some of it."""
    shared = {
        key: value
        for key, value in runpy.run_path(str(_GROUP_DATA)).items()
        if not key.startswith("_")
    }
    return plan_of(name, {**shared, **data})


def pins_for(plan: HostPlan, model_bytes: int = 20 * GIB, image_bytes: int = 10 * GIB) -> Pins:
    """Pins: version 1.0 of every package, one commit, one digest, models of one file."""
    asked = wanted([(plan.settings, plan.targets)])
    weights = (FilePin("model.safetensors", model_bytes, sha256=64 * "e"),)
    return Pins(
        python={
            item.key: PythonPin(
                tuple(_exact(text) for text in item.asked), item.architecture, item.python
            )
            for item in asked.python
        },
        git={item.url: GitPin(item.branch, COMMIT) for item in asked.git},
        images={
            item.reference: ImagePin(DIGEST, item.architecture, image_bytes)
            for item in asked.images
        },
        models={item.id: ModelPin(item.revision, COMMIT, weights) for item in asked.models},
    )


def _exact(requirement: str) -> str:
    return requirement if "==" in requirement else f"{requirement}==1.0"
