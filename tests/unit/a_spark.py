"""One Spark as group_data/all.py describes it, with pins for everything that it asks for."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from lockstep import preflight
from lockstep.inventory import HostPlan
from lockstep.inventory import plan as plan_of
from lockstep.pins import FilePin, GitPin, ImagePin, ModelPin, Pins, PythonPin
from lockstep.wanted import wanted

GIB = 1024**3
COMMIT = 40 * "c"
_GROUP_DATA = Path(__file__).parents[2] / "group_data/all.py"


def spark(name: str = "spark1", **data: object) -> HostPlan:
    """A host with the defaults of group data, and ``data`` in place of some of it."""
    shared = {
        key: value
        for key, value in runpy.run_path(str(_GROUP_DATA)).items()
        if not key.startswith("_")
    }
    return plan_of(name, {**shared, **data})


def digest_of(number: int) -> str:
    """The digest that `pins_for` gives to the image of this number."""
    return f"sha256:{number:064x}"


def pins_for(plan: HostPlan, model_bytes: int = 20 * GIB, image_bytes: int = 10 * GIB) -> Pins:
    """Pins: version 1.0 of every package, one commit, models of one file."""
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
            item.reference: ImagePin(digest_of(number), item.architecture, image_bytes)
            for number, item in enumerate(asked.images)
        },
        models={item.id: ModelPin(item.revision, COMMIT, weights) for item in asked.models},
    )


def _exact(requirement: str) -> str:
    return requirement if "==" in requirement else f"{requirement}==1.0"


def healthy(plan: HostPlan, now: float) -> dict[str, Any]:
    """What the probe `preflight` answers on a Spark as NVIDIA ships it, before any deploy."""
    # "/var/lib" is asked for where Docker does not say its own folder.
    folders = ("/var/lib", "/data/models", "/opt/lockstep/engines", "/var/lib/docker")
    return {
        "architecture": "aarch64",
        "dgx": {"DGX_SWBUILD_VERSION": "7.2.3", "DGX_PLATFORM": "DGX Server for KVM"},
        "cuda": {"release": "13.0", "ptxas": True},
        "gpu": {"name": "NVIDIA GB10", "driver_version": "580.95.05", "compute_cap": "12.1"},
        "docker": {
            "version": "28.3.3",
            "runtimes": ["io.containerd.runc.v2", "nvidia", "runc"],
            "cdi": False,
            "images": [],
            "root": "/var/lib/docker",
        },
        "memory": {"MemTotal": int(119.7 * GIB), "MemAvailable": int(115.0 * GIB)},
        "disks": {path: {"device": 1, "free": 3000 * GIB} for path in folders},
        "listeners": {},
        "reach": dict.fromkeys(preflight.addresses(plan)),
        "unknown_accounts": [],
        "models": dict.fromkeys(preflight.models_of(plan), 0),
        "engine_built": False,
        "units_held": False,
        "time": now + 1.5,
    }
