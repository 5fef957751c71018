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
        message = f"it is {facts['architecture']}, expected {expected.architecture}"
        remedy = "Is this a Spark? `expected.architecture` says what is demanded."
        yield Finding("architecture", "error", host, message, remedy)
    release = facts["dgx"]
    version = release.get(dgx_os.deciding(release), "")
    if not release:
        message = "/etc/dgx-release is missing: not DGX OS"
        yield Finding("dgx-os", "error", host, message, "Install DGX OS, or name another host.")
    elif expected.dgx_os and not dgx_os.matches(version, expected.dgx_os):
        message = f"DGX OS {dgx_os.shown(release)}, expected {expected.dgx_os}"
        remedy = "Update it from the DGX Dashboard (docs/operating.md)."
        yield Finding("dgx-os", "error", host, message, remedy)
    cuda = facts["cuda"]
    if cuda.get("nvcc") != expected.cuda_toolkit or "ptxas" not in cuda:
        shown = cuda.get("nvcc", "no toolkit")
        shown += "" if "ptxas" in cuda else ", ptxas does not run"
        message = f"/usr/local/cuda is {shown}, expected {expected.cuda_toolkit} with ptxas"
        remedy = "Install the CUDA toolkit of DGX OS (apt install cuda-toolkit-13-0)."
        yield Finding("cuda", "error", host, message, remedy)
    gpu = facts["gpu"]
    yield from known_bad.driver(host, gpu)
    if gpu.get("compute_cap", expected.compute_capability) != expected.compute_capability:
        message = (
            f"GPU {gpu['name']} has compute capability {gpu['compute_cap']}, expected "
            f"{expected.compute_capability}"
        )
        remedy = "Kernels here are built for 12.1a: this is not a GB10."
        yield Finding("gpu", "error", host, message, remedy)
    asked, told = plan.settings.gpu.max_clock_mhz, gpu.get("clocks.max.sm", "").partition(" ")[0]
    # A GB10 names its highest clock alone.
    if asked and told.isdecimal() and asked > int(told):
        message = f"gpu.max_clock_mhz is {asked} MHz, and the GPU's highest clock is {told} MHz"
        yield Finding("gpu-clock", "error", host, message, "Name a lower clock, or remove the key.")
    memory = facts["memory"]["MemTotal"] / GIB
    if memory < expected.memory_gib:
        message = f"{memory:.1f} GiB of unified memory, expected {expected.memory_gib:g} GiB"
        remedy = "Is something else holding memory at boot (hugepages, a second GPU)?"
        yield Finding("memory", "error", host, message, remedy)
    rdma = any(group.devices for group in plan.groups)
    yield from known_bad.kernel(host, facts["kernel"], rdma=rdma)
