"""One Spark as group_data/all.py describes it, with pins for all of its artefacts."""

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
from lockstep.inventory.host import HostPlan, checkpoints_of
from lockstep.inventory.inventory_file import plan as plan_of
from lockstep.lock.lock_items import wanted_items
from lockstep.lock.moving import (
    CheckpointItem,
    GitItem,
    ImageItem,
    Item,
    PrecompiledItem,
    PythonItem,
)
from lockstep.lock.packages import name_of
from lockstep.lock.pins import (
    CheckpointPin,
    FilePin,
    GitPin,
    ImagePin,
    Pin,
    Pins,
    PrecompiledPin,
    PythonPin,
    WheelPin,
    pins_of,
)
from lockstep.system.folders import IMAGE_STORE

GIB = 1024**3
COMMIT = 40 * "c"
#: A model of two Sparks, and the interfaces of a port between them.
GLM = {"recipe": "deepseek-v4-flash-2x", "unit": "vllm-glm", "cluster": "pair"}
PORTS = ("enp1s0f0np0", "enP2p1s0f0np0")
_REPOSITORY = Path(__file__).parents[2]


def spark(name: str = "spark1", **data: object) -> HostPlan:
    """A host with the defaults of group data, and ``data`` in place of some of it."""
    return plan_of(name, {**copy.deepcopy(_group_defaults()), **data}, folder=_REPOSITORY)


def of_pair(number: int, **data: Any) -> dict[str, Any]:
    """Data of a member of the pair of `spark-1` and `spark-2`, which serve a model together."""
    return {
        "models": {"glm": GLM},
        "clusters": {"pair": {"hosts": ("spark-1", "spark-2")}},
        "fabric_address": f"10.77.0.{number}",
        "fabric": {"interfaces": {PORTS[0]: f"10.77.0.{number}/24"}},
        **data,
    }


@cache
def _group_defaults() -> dict[str, object]:
    """The defaults of group data."""
    group_data = runpy.run_path(str(_REPOSITORY / "group_data/all.py"))
    return {key: value for key, value in group_data.items() if not key.startswith("_")}


def digest_of(number: int) -> str:
    """The digest that `pins_for` gives to the image of this number."""
    return f"sha256:{number:064x}"


def pins_for(plan: HostPlan, model_bytes: int = 20 * GIB, image_bytes: int = 10 * GIB) -> Pins:
    """Pins for a plan: version 1.0 of every package, one commit, models of one file."""
    weights = (FilePin("model.safetensors", model_bytes, sha256=64 * "e"),)
    digests = map(digest_of, count())

    def pin(item: Item) -> Pin:
        match item:
            case PythonItem():
                return environment(item)
            case GitItem():
                return GitPin(item.branch, item.commit or COMMIT)
            case PrecompiledItem():
                return precompiled_pin(item)
            case ImageItem():
                return ImagePin(next(digests), item.architecture, image_bytes)
            case CheckpointItem():
                return CheckpointPin(item.revision, COMMIT, weights)

    return pins_of({item: pin(item) for item in wanted_items([(plan.settings, plan.models)])})


def precompiled_pin(item: PrecompiledItem, commit: str = COMMIT) -> PrecompiledPin:
    """A wheel of one upstream commit, for a fork at another commit."""
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


def environment(item: PythonItem, version: str = "1.0", commit: str = COMMIT) -> PythonPin:
    """An environment with exactly the desired packages, at one version or the desired one."""
    wheels = [wheel(*_exact(text, version)) for text in item.requirements]
    if item.build:
        wheels = [wheel("setuptools", version)]
    return PythonPin(
        item.requirements,
        item.architecture,
        item.python,
        tuple(sorted(wheels, key=lambda pin: pin.name)),
        {tree.url: tree.commit or commit for tree in item.trees},
        exclude_newer=item.exclude_newer,
    )


def wheel(name: str, version: str) -> WheelPin:
    """A wheel whose hash is derived from its name."""
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return WheelPin(name, version, file, hashlib.sha256(file.encode()).hexdigest(), 1000)


def _exact(requirement: str, version: str) -> tuple[str, str]:
    _, equal, exact = requirement.partition("==")
    return name_of(requirement), exact if equal else version


def healthy(plan: HostPlan, now: float) -> dict[str, Any]:
    """The answer of the reader `preflight` on a Spark as NVIDIA ships it, before any deploy."""
    # "/var/lib" is the question's folder where Docker does not report its own.
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
            # Earlier images of DGX OS have this: no registered runtime, and no CDI file.
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
        # The value after a deploy.
        "min_free_kib": 1048576,
        "memory": {"MemTotal": int(119.7 * GIB), "MemAvailable": int(115.0 * GIB)},
        "disks": {path: {"device": 1, "free": 3000 * GIB} for path in folders},
        "listeners": {},
        "reach": dict.fromkeys(preflight.addresses(plan)),
        "unknown_accounts": [],
        "unknown_sysctls": {},
        "foreign": {},
        "fabric": {"absent": [], "known": ["enP7s7", "lo"], "netplan": True, "wireless": ""},
        "checkpoints": {name: {} for name in checkpoints_of(plan)},
        "lacking": [preflight.CHECKPOINTS, preflight.TOOLS, preflight.ENGINE],
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
    """The findings of preflight on such a Spark with these facts; a mapping is merged."""
    plan, now = plan or spark(), 1_795_000_000.0
    return preflight.findings(plan, pins_for(plan), _with(healthy(plan, now), facts), now=now)


def _with(facts: Any, changes: Any) -> Any:
    if not isinstance(facts, Mapping) or not isinstance(changes, Mapping):
        return changes
    return {**facts, **{key: _with(facts.get(key), value) for key, value in changes.items()}}
