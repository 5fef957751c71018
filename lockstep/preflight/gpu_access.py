"""What `docker run --gpus all` uses on a host: NVIDIA's hook, or a CDI file of the GPU.

moby's own source decides it (daemon/nvidia_linux.go of 28.5.2, daemon/devices_nvidia_linux.go of
29.7.2, read 2026-11-22): a runtime that is registered as `nvidia` is asked by neither.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Literal

from lockstep.onhost.facts.docker import CDI_HOOK, DEVICE, HOOK

# moby/moby#50228. #52704 would turn the order round again and was open in August 2026.
CDI_FIRST = 29


def takes_cdi_first(version: str | None) -> bool:
    """Whether this version of Docker looks for a CDI device before it takes the hook."""
    found = re.match(r"\d+", version or "")
    return found is not None and int(found[0]) >= CDI_FIRST


def way(
    version: str | None, hooks: Collection[str], devices: Collection[str]
) -> Literal["cdi", "hook"] | None:
    """What a container gets the GPU by; None where `--gpus all` is an error.

    Args:
        version: Docker's, as `docker info` says it.
        hooks: NVIDIA's programs on the PATH of Docker's daemon.
        devices: CDI devices that Docker knows.
    """
    if takes_cdi_first(version) and CDI_HOOK in hooks and DEVICE in devices:
        return "cdi"
    return "hook" if HOOK in hooks else None


def in_force(files: Mapping[str, str]) -> list[str]:
    """The CDI files that count: a device of /var/run/cdi stands before its like of /etc/cdi."""
    written = [path for path in files if PurePosixPath(path).parts[1] != "etc"]
    return written or list(files)
