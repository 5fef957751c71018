"""The parts of the page: the questions of a Spark's first hour, and the facts that answer each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Packages that decide about GPU, containers, kernel and apt; a Spark has two thousand.
_PACKAGES = re.compile(
    r"dgx-.*|nvidia-.*|libnvidia-(?:compute|container|cfg).*|cuda-(?:toolkit|runtime|drivers).*"
    r"|docker-.*|containerd.*|linux-(?:image|nvidia|modules-nvidia).*|mlnx-.*|.*mlnx-hotplug.*"
    r"|earlyoom|systemd|openssh-server|unattended-upgrades|apt|libnccl2|rdma-core|python3"
)
# Of Docker's settings, those that name no server of the owner's.
_DOCKER = re.compile(
    r"version|storage driver|cgroup .*|default runtime|runtime .*|hook .*|device .*|log driver"
    r"|live restore"
)
# A hash that only `diff` can compare.
_CUDA = re.compile(r"(?!version\.json).*")

# Found by the plan, and by no host.
NEEDED = "memory needed"


@dataclass(frozen=True)
class Part:
    """One question and what answers it.

    Attributes:
        key: Its name in the JSON document.
        title: Its heading on the page.
        only: Kind → pattern of the items that are shown; without one, all are.
        lines: How the names of its lines begin; () for none.
    """

    key: str
    title: str
    kinds: tuple[str, ...] = ()
    only: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    def wanted(self, kind: str, item: str) -> bool:
        """Whether a fact is shown."""
        return kind not in self.only or self.only[kind].fullmatch(item) is not None


PARTS = (
    Part(
        "identity",
        "Identity and versions",
        ("DGX OS", "DGX factory", "kernel", "firmware", "CUDA", "apt hold", "apt package"),
        {"apt package": _PACKAGES, "CUDA": _CUDA},
        lines=("updates of DGX OS",),
    ),
    Part("gpu", "GPU and its devices", ("driver", "gpu", "gpu now", "device"), lines=("gpu",)),
    Part(
        "docker",
        "Docker's view of the GPU",
        ("docker", "toolkit", "CDI driver"),
        {"docker": _DOCKER},
    ),
    Part("apt", "apt and the services of the first day", ("apt now", "service"), lines=("apt",)),
    Part(
        "memory",
        "Memory now",
        ("memory now", NEEDED, "memory"),
        {"memory": re.compile(r"swap .*|huge pages .*|governor|processors")},
    ),
    Part("network", "Network and RDMA devices", ("link", "RDMA device")),
    Part("oom", "Whom the kernel kills first: OOM scores", ("OOM score",)),
    Part("engine", "What the engines are and can import", ("engine",)),
    Part("starts", "The last start of each target", lines=("start of ",)),
    Part("driver", "What the driver told the kernel", lines=("kernel, ",)),
    Part("deployed", "What a deploy left", ("deployed", "accepted speed")),
)
