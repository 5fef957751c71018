"""The parts of the page: the questions of a Spark's first hour, with the facts that answer each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Packages that decide about GPU, containers, kernel and apt. A Spark has two thousand packages.
_PACKAGES = re.compile(
    r"dgx-.*|nvidia-.*|libnvidia-(?:compute|container|cfg).*|cuda-(?:toolkit|runtime|drivers).*"
    r"|docker-.*|containerd.*|linux-(?:image|nvidia|modules-nvidia).*|mlnx-.*|.*mlnx-hotplug.*"
    r"|earlyoom|systemd|openssh-server|unattended-upgrades|apt|libnccl2|rdma-core|python3"
)
# The settings of Docker's that name no server of the owner's.
_DOCKER = re.compile(
    r"version|storage driver|cgroup .*|default runtime|runtime .*|hook .*|device .*|log driver"
    r"|live restore"
)
# Only `diff` can compare this hash.
_CUDA = re.compile(r"(?!version\.json).*")

# The plan computes this fact; no host has it.
NEEDED = "memory needed"


@dataclass(frozen=True)
class EvidencePart:
    """One question and the facts that answer it.

    Attributes:
        key: Its name in the JSON document.
        title: Its heading on the page.
        kinds: The kinds of facts that answer it.
        only: The pattern of the items to show by kind; without one, all are shown.
        lines: Beginnings of the names of its lines; () for none.
    """

    key: str
    title: str
    kinds: tuple[str, ...] = ()
    only: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    def is_wanted(self, kind: str, item: str) -> bool:
        """Tell whether a fact is shown."""
        return kind not in self.only or self.only[kind].fullmatch(item) is not None


PARTS = (
    EvidencePart(
        "identity",
        "Identity and versions",
        ("DGX OS", "DGX factory", "kernel", "firmware", "CUDA", "apt hold", "apt package"),
        {"apt package": _PACKAGES, "CUDA": _CUDA},
        lines=("updates of DGX OS",),
    ),
    EvidencePart(
        "gpu", "GPU and its devices", ("driver", "gpu", "gpu now", "device"), lines=("gpu",)
    ),
    EvidencePart(
        "docker",
        "Docker's view of the GPU",
        ("docker", "toolkit", "CDI driver"),
        {"docker": _DOCKER},
    ),
    EvidencePart(
        "apt", "apt and the services of the first day", ("apt now", "service"), lines=("apt",)
    ),
    EvidencePart(
        "memory",
        "Memory now",
        ("memory now", NEEDED, "memory"),
        {"memory": re.compile(r"swap .*|huge pages .*|governor|processors")},
    ),
    EvidencePart("network", "Network and RDMA devices", ("link", "RDMA device")),
    EvidencePart("oom", "Whom the kernel kills first: OOM scores", ("OOM score",)),
    EvidencePart("engine", "What the engines are and can import", ("engine",)),
    EvidencePart("starts", "The last start of each model", lines=("start of ",)),
    EvidencePart("driver", "What the driver told the kernel", lines=("kernel, ",)),
    EvidencePart("deployed", "What a deploy left", ("deployed", "accepted speed")),
)
