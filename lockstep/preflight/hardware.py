"""Preflight: architecture, DGX OS, CUDA, driver, GPU, memory and kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan
from lockstep.preflight import dgx_os, known_bad

GIB = 1024**3


def findings(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """What is wrong with the machine and its system."""
    expected, host = plan.settings.expected, plan.name
    if facts["architecture"] != expected.architecture:
        yield Finding(
            "architecture",
            "error",
            host,
            f"it is {facts['architecture']}, expected {expected.architecture}",
            "Is this a Spark? `expected.architecture` says what is demanded.",
        )
    release = facts["dgx"]
    if not release:
        yield Finding(
            "dgx-os",
            "error",
            host,
            "/etc/dgx-release is missing: not DGX OS",
            "Install DGX OS, or name another host.",
        )
    elif expected.dgx_os and not dgx_os.matches(
        release.get(dgx_os.deciding(release), ""), expected.dgx_os
    ):
        yield Finding(
            "dgx-os",
            "error",
            host,
            f"DGX OS {dgx_os.shown(release)}, expected {expected.dgx_os}",
            "Update it from the DGX Dashboard (docs/operating.md).",
        )
    cuda = facts["cuda"]
    if cuda.get("nvcc") != expected.cuda_toolkit or "ptxas" not in cuda:
        shown = cuda.get("nvcc", "no toolkit")
        shown += "" if "ptxas" in cuda else ", ptxas does not run"
        yield Finding(
            "cuda",
            "error",
            host,
            f"/usr/local/cuda is {shown}, expected {expected.cuda_toolkit} with ptxas",
            "Install the CUDA toolkit of DGX OS (apt install cuda-toolkit-13-0).",
        )
    gpu = facts["gpu"]
    yield from known_bad.driver(host, gpu)
    if gpu.get("compute_cap", expected.compute_capability) != expected.compute_capability:
        yield Finding(
            "gpu",
            "error",
            host,
            f"GPU {gpu['name']} has compute capability {gpu['compute_cap']}, expected "
            f"{expected.compute_capability}",
            "Kernels here are built for 12.1a: this is not a GB10.",
        )
    yield from _clock(plan, gpu)
    memory = facts["memory"]["MemTotal"] / GIB
    if memory < expected.memory_gib:
        yield Finding(
            "memory",
            "error",
            host,
            f"{memory:.1f} GiB of unified memory, expected {expected.memory_gib:g} GiB",
            "Is something else holding memory at boot (hugepages, a second GPU)?",
        )
    rdma = any(group.devices for group in plan.groups)
    yield from known_bad.kernel(host, facts["kernel"], rdma=rdma)


def _clock(plan: HostPlan, gpu: dict[str, str]) -> Iterator[Finding]:
    """A cap of the clock that this GPU does not have. A GB10 names its highest clock alone."""
    asked, told = plan.settings.gpu.max_clock_mhz, gpu.get("clocks.max.sm", "").partition(" ")[0]
    if asked and told.isdecimal() and asked > int(told):
        yield Finding(
            "gpu-clock",
            "error",
            plan.name,
            f"gpu.max_clock_mhz is {asked} MHz, and the GPU's highest clock is {told} MHz",
            "Name a lower clock, or remove the key.",
        )
