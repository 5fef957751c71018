"""One Spark as group_data/all.py describes it, with pins for everything that it asks for."""

from __future__ import annotations

import copy
import hashlib
import runpy
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from lockstep import preflight
from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan, models_of
from lockstep.inventory.inventory_file import plan as plan_of
from lockstep.lock.moving import (
    GitWanted,
    ImageWanted,
    Item,
    ModelWanted,
    PrecompiledWanted,
    PythonWanted,
)
from lockstep.lock.packages import name_of
from lockstep.lock.pins import (
    FilePin,
    GitPin,
    ImagePin,
    ModelPin,
    Pin,
    Pins,
    PrecompiledPin,
    PythonPin,
    WheelPin,
    pinned,
)
from lockstep.lock.wanted import wanted
from lockstep.system.folders import IMAGE_STORE

GIB = 1024**3
COMMIT = 40 * "c"
_REPOSITORY = Path(__file__).parents[2]


def spark(name: str = "spark1", **data: object) -> HostPlan:
    """A host with the defaults of group data, and ``data`` in place of some of it."""
    return plan_of(name, {**copy.deepcopy(_shared()), **data}, folder=_REPOSITORY)


@cache
def _shared() -> dict[str, object]:
    """The defaults of group data."""
    named = runpy.run_path(str(_REPOSITORY / "group_data/all.py"))
    return {key: value for key, value in named.items() if not key.startswith("_")}


def digest_of(number: int) -> str:
    """The digest that `pins_for` gives to the image of this number."""
    return f"sha256:{number:064x}"


def pins_for(plan: HostPlan, model_bytes: int = 20 * GIB, image_bytes: int = 10 * GIB) -> Pins:
    """Pins: version 1.0 of every package asked for, one commit, models of one file."""
    weights = (FilePin("model.safetensors", model_bytes, sha256=64 * "e"),)
    digests = map(digest_of, count())

    def pin(item: Item) -> Pin:
        match item:
            case PythonWanted():
                return environment(item)
            case GitWanted():
                return GitPin(item.branch, item.commit or COMMIT)
            case PrecompiledWanted():
                return compiled(item)
            case ImageWanted():
                return ImagePin(next(digests), item.architecture, image_bytes)
            case ModelWanted():
                return ModelPin(item.revision, COMMIT, weights)

    return pinned({item: pin(item) for item in wanted([(plan.settings, plan.targets)])})


def compiled(item: PrecompiledWanted, commit: str = COMMIT) -> PrecompiledPin:
    """A wheel of one commit of upstream's, for a fork at another."""
    base = item.commit or 40 * "b"
    file = f"vllm-0.19.1.dev1+g{base[:9]}.cu130-cp38-abi3-manylinux_2_35_{item.architecture}.whl"
    return PrecompiledPin(
        item.tree.commit or commit,
        item.upstream,
        base,
        item.architecture,
        item.variant,
        f"{base}/{file}",
        hashlib.sha256(file.encode()).hexdigest(),
        1000,
    )


def environment(item: PythonWanted, version: str = "1.0", commit: str = COMMIT) -> PythonPin:
    """An environment of what is asked for and nothing besides, at one version or the one asked."""
    wheels = [wheel(*_exact(text, version)) for text in item.asked]
    if item.build:
        wheels = [wheel("setuptools", version)]
    return PythonPin(
        item.asked,
        item.architecture,
        item.python,
        tuple(sorted(wheels, key=lambda each: each.name)),
        {tree.url: tree.commit or commit for tree in item.trees},
        exclude_newer=item.exclude_newer,
    )


def wheel(name: str, version: str) -> WheelPin:
    """A wheel whose hash says no more than its name."""
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return WheelPin(name, version, file, hashlib.sha256(file.encode()).hexdigest(), 1000)


def _exact(requirement: str, version: str) -> tuple[str, str]:
    _, equal, exact = requirement.partition("==")
    return name_of(requirement), exact if equal else version


def healthy(plan: HostPlan, now: float) -> dict[str, Any]:
    """What the reader `preflight` answers on a Spark as NVIDIA ships it, before any deploy."""
    # "/var/lib" is asked for where Docker does not say its own folder.
    hub = "/data/models/huggingface"
    folders = ("/var/lib", hub, "/opt/lockstep/engines", "/var/lib/docker", IMAGE_STORE)
    return {
        "architecture": "aarch64",
        "dgx": {"DGX_SWBUILD_VERSION": "7.2.3", "DGX_PLATFORM": "DGX Server for KVM"},
        "system": "Ubuntu 24.04.3 LTS",
        "cuda": {"nvcc": "13.0", "ptxas": "13.0.88"},
        "gpu": {
            "name": "NVIDIA GB10",
            "driver_version": "580.95.05",
            "compute_cap": "12.1",
            "cuda": "13.0",
        },
        "docker": {
            # As its earlier images have it; no runtime is registered there, and no CDI file.
            "version": "28.3.3",
            "hooks": ["nvidia-container-runtime-hook"],
            "devices": [],
            "cdi": {},
            "images": [],
            "foreign": {"containers": {}, "volumes": []},
            "root": "/var/lib/docker",
        },
        "docker_ways": {"client": True, "rootless": [], "snap": False, "said": ""},
        "kernel": {
            "release": "6.17.0-1031-nvidia",
            "command_line": "BOOT_IMAGE=/boot/vmlinuz-6.17.0-1031-nvidia ro quiet",
            "cma": {"CmaTotal": 32 * 1024**2, "CmaFree": 32 * 1024**2},
        },
        # As after a deploy.
        "min_free_kib": 1048576,
        "memory": {"MemTotal": int(119.7 * GIB), "MemAvailable": int(115.0 * GIB)},
        "disks": {path: {"device": 1, "free": 3000 * GIB} for path in folders},
        "listeners": {},
        "reach": dict.fromkeys(preflight.addresses(plan)),
        "unknown_accounts": [],
        "unknown_sysctls": {},
        "foreign": {},
        "fabric": {"absent": [], "known": ["enP7s7", "lo"], "netplan": True, "wireless": ""},
        "models": {name: {} for name in models_of(plan)},
        "lacking": [preflight.MODELS, preflight.TOOLS, preflight.ENGINE],
        "earlyoom": "1.7-2",
        "updates": {
            "once": {"state": "enabled", "running": False, "done": True},
            "daily": [],
            "holder": None,
        },
        "unfinished": {},
        "leases": [],
        "identity": {"machine_id": plan.name, "host_keys": [f"ssh-ed25519 SHA256:{plan.name}"]},
        "units_up": [],
        "gpu_held": [],
        "units_held": False,
        "named": "",
        "time": now + 1.5,
        "tls": {"fault": "", "days": None},
    }


def findings(plan: HostPlan | None = None, **facts: Any) -> list[Finding]:
    """What preflight finds on such a Spark with these facts; of a mapping the rest stays."""
    plan, now = plan or spark(), 1_795_000_000.0
    return preflight.findings(plan, pins_for(plan), _with(healthy(plan, now), facts), now=now)


def _with(facts: Any, changed: Any) -> Any:
    if not isinstance(facts, Mapping) or not isinstance(changed, Mapping):
        return changed
    return {**facts, **{key: _with(facts.get(key), value) for key, value in changed.items()}}
