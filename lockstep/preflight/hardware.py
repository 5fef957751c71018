"""Preflight: architecture, DGX OS, CUDA, driver, GPU, memory and kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.core.findings import Finding
from lockstep.fit import catalogue
from lockstep.inventory.host import HostPlan
from lockstep.preflight import dgx_os, known_bad

GIB = 1024**3


def is_toolkit(found_version: str, wanted_version: str) -> bool:
    """Tell whether a CUDA toolkit will do: the wanted release, or a later one of its major."""
    have, least = _numbers(found_version), _numbers(wanted_version)
    return have[:1] == least[:1] and have >= least


def _numbers(release: str) -> tuple[int, ...]:
    """Return (13, 0) of "13.0"; () of words."""
    parts = release.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def _cuda(
    host: str, wanted_version: str, toolkit: Mapping[str, str], gpu: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield findings about the toolkit, by itself and beside the driver."""
    found_version, takes = toolkit.get("nvcc", ""), gpu.get("cuda", "")
    # The link is one of Debian's alternatives, and stays at the newest installed toolkit.
    choose = (
        f"`sudo apt-get install cuda-toolkit-{wanted_version.replace('.', '-')}` brings the one "
        "of DGX OS, "
        f"`sudo update-alternatives --set cuda /usr/local/cuda-{wanted_version}` has the link "
        "lead to it"
    )
    if not is_toolkit(found_version, wanted_version) or "ptxas" not in toolkit:
        found_text = found_version or "no toolkit"
        found_text += "" if "ptxas" in toolkit else ", ptxas does not run"
        major = wanted_version.partition(".")[0]
        message = (
            f"/usr/local/cuda is {found_text}, expected {wanted_version} or a later one of "
            f"{major}, with ptxas"
        )
        remedy = f"{choose}. `expected.cuda_toolkit` of the inventory says what is demanded."
        yield Finding("cuda", "error", host, message, remedy)
    elif takes and _numbers(found_version) > _numbers(takes):
        message = (
            f"/usr/local/cuda is {found_version}, and driver {gpu['driver_version']} takes CUDA "
            f"{takes} at "
            "most: kernels that it compiles for this GPU run, those that are left for the driver "
            "to compile (PTX) do not"
        )
        yield Finding("cuda-newer", "warning", host, message, f"{choose}.")


def findings(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield the faults of the machine and its system."""
    expected_machine, host = plan.settings.expected, plan.name
    if facts["architecture"] != expected_machine.architecture:
        message = f"it is {facts['architecture']}, expected {expected_machine.architecture}"
        remedy = "Is this a Spark? `expected.architecture` says what is demanded."
        yield Finding("architecture", "error", host, message, remedy)
    release = facts["dgx"]
    version = release.get(dgx_os.deciding(release), "")
    if not release:
        message = f"it runs {facts['system']} and not DGX OS: /etc/dgx-release is missing"
        remedy = (
            "Install DGX OS, or name another host. A GB10 that is to stay with Ubuntu 24.04 needs "
            'what DGX OS would bring (`lockstep help operating`); `"waive": ("dgx-os",)` in the '
            "inventory then goes on."
        )
        yield Finding("dgx-os", "error", host, message, remedy)
    elif expected_machine.dgx_os and not dgx_os.matches(version, expected_machine.dgx_os):
        message = f"DGX OS {dgx_os.release_text(release)}, expected {expected_machine.dgx_os}"
        remedy = "Update it from the DGX Dashboard (`lockstep help operating`)."
        yield Finding("dgx-os", "error", host, message, remedy)
    gpu = facts["gpu"]
    yield from _cuda(host, expected_machine.cuda_toolkit, facts["cuda"], gpu)
    yield from known_bad.driver(host, gpu)
    if (
        gpu.get("compute_cap", expected_machine.compute_capability)
        != expected_machine.compute_capability
    ):
        message = (
            f"GPU {gpu['name']} has compute capability {gpu['compute_cap']}, expected "
            f"{expected_machine.compute_capability}"
        )
        remedy = "Kernels here are built for 12.1a: this is not a GB10."
        yield Finding("gpu", "error", host, message, remedy)
    wanted_clock, reported_clock = (
        plan.settings.gpu.max_clock_mhz,
        gpu.get("clocks.max.sm", "").partition(" ")[0],
    )
    # A GB10 names only its highest clock.
    if wanted_clock and reported_clock.isdecimal() and wanted_clock > int(reported_clock):
        message = (
            f"gpu.max_clock_mhz is {wanted_clock} MHz, and the GPU's highest clock is "
            f"{reported_clock} MHz"
        )
        yield Finding("gpu-clock", "error", host, message, "Name a lower clock, or remove the key.")
    memory = facts["memory"]["MemTotal"] / GIB
    if memory < expected_machine.memory_gib:
        message = (
            f"{memory:.1f} GiB of unified memory, expected {expected_machine.memory_gib:g} GiB"
        )
        remedy = "Is something else holding memory at boot (hugepages, a second GPU)?"
        knowledge = catalogue.knowledge()
        if (kind := knowledge.machine_with(memory)) != catalogue.machine_of(plan.settings):
            least = int(knowledge.hardware[kind].gib("memory_total_gib")) - 1
            remedy = (
                f"A Spark with less memory ({kind} in catalogue/hardware.yaml)? Set "
                f'`expected = {{"memory_gib": {least}}}` for this host: plan, fit and the memory '
                "minimums then count with it."
            )
        yield Finding("memory", "error", host, message, remedy)
    rdma = any(group.devices for group in plan.groups)
    yield from known_bad.kernel(host, facts["kernel"], rdma=rdma)
