"""Kernel, firmware, driver, DGX OS, CUDA, memory, disks and clock."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lockstep.onhost.facts.reader_helpers import (
    Facts,
    folder_paths,
    lines_of_file,
    pairs,
    paths_below,
    run,
    seal_file,
    text,
)
from lockstep.onhost.records import original_state

UNTOLD = "untold"  #: A CDI file that names no library of the driver by its version.
# Values of each machine's own, which are no sign of another state.
_OWN_RELEASE = {"DGX_SERIAL_NUMBER", "DGX_OTA_DATE"}
# Values of the factory's installation: outdated once an update has come.
_FACTORY = {"DGX_SWBUILD_DATE", "DGX_SWBUILD_VERSION", "DGX_COMMIT_ID"}
_OWN_ARGUMENT = re.compile(r"^(root|resume|cryptdevice|BOOT_IMAGE|initrd)=")
_FIRMWARE = ("bios_version", "bios_date", "ec_firmware_release", "product_name", "board_name")
_GPU = {
    "name": "GPU",
    "driver_version": "version",
    "compute_cap": "compute capability",
    "vbios_version": "VBIOS",
    "clocks.max.sm": "highest clock",
}
# The highest CUDA that the driver accepts. No field of a query has it.
_DRIVER_S_CUDA = re.compile(r"CUDA(?: \w+)? Version *: *(\d+\.\d+)")
CDI = ("/etc/cdi", "/var/run/cdi")


def available(_: object) -> int:
    """Return the memory that programs can get now, bytes: the kernel's MemAvailable."""
    return meminfo("MemAvailable")["MemAvailable"]


def meminfo(*keys: str) -> dict[str, int]:
    """Return the bytes of those keys that the kernel reports."""
    fields = dict(line.split(":", 1) for line in lines_of_file("/proc/meminfo"))
    return {key: int(fields[key].split()[0]) * 1024 for key in keys if key in fields}


def os_release_name() -> str:
    """Return the system's name in /etc/os-release ("Ubuntu 24.04.3 LTS")."""
    return dict(pairs("/etc/os-release")).get("PRETTY_NAME", "a system without a name")


def dgx_release() -> dict[str, str]:
    """Return the KEY="value" lines of /etc/dgx-release, the last of each; {} without the file."""
    return dict(pairs("/etc/dgx-release"))


def cuda_toolkit_releases() -> dict[str, str]:
    """Return the release ("13.0") of each program of the toolkit ("nvcc", "ptxas") that runs."""
    toolkit = {}
    for name, pattern in (("nvcc", r"release (\d+\.\d+)"), ("ptxas", r"V(\d[\d.]+)")):
        result = run(f"/usr/local/cuda/bin/{name}", "--version")
        if result.returncode == 0:
            match = re.search(pattern, result.stdout)
            toolkit[name] = match[1] if match else "runs"
    return toolkit


def gpu() -> dict[str, str]:
    """Return nvidia-smi's values of the first GPU, and the highest "cuda" that its driver takes.

    If nvidia-smi fails, the result has the "fault" alone: a driver that was updated and not yet
    loaded says so.
    """
    result = run("nvidia-smi", f"--query-gpu={','.join(_GPU)}", "--format=csv,noheader")
    reason = " ".join((result.stderr or result.stdout).split())
    if result.returncode != 0 or not result.stdout.strip():
        return {"fault": (reason or f"nvidia-smi ended with {result.returncode}")[:200]}
    values = (part.strip() for part in result.stdout.splitlines()[0].split(","))
    takes = _DRIVER_S_CUDA.search(run("nvidia-smi").stdout)
    return {**dict(zip(_GPU, values, strict=False)), **({"cuda": takes[1]} if takes else {})}


def _cdi_files() -> list[str]:
    return [path for folder in CDI for path in folder_paths(folder)]


def cdi_drivers() -> dict[str, str]:
    """Return the driver that each CDI file with NVIDIA's GPU was made for, "" if it names none."""
    cdi_files = {}
    for path in _cdi_files():
        content = text(path) or ""
        if "nvidia.com/gpu" in content:
            made_for = re.search(r"libcuda\.so\.(\d+\.[\d.]*\d)", content)
            cdi_files[path] = made_for[1] if made_for else ""
    return cdi_files


def unknown_sysctls(keys: Iterable[str]) -> dict[str, str]:
    """Return settings that this kernel does not have → the nearest name here, or ""."""
    unknown_settings = {}
    for key in keys:
        folder, _, name = ("/proc/sys/" + key.replace(".", "/")).rpartition("/")
        if not os.path.exists(f"{folder}/{name}"):
            import difflib  # Programs on a host start without it.

            names = [os.path.basename(path) for path in folder_paths(folder)]
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
            unknown_settings[key] = f"{key[: -len(name)]}{near[0]}" if near else ""
    return unknown_settings


def kernel(_: object) -> Facts:
    """Yield the running kernel, its command line, and whether another one waits for a boot."""
    names = os.uname()
    yield "kernel", "release", names.release
    yield "kernel", "build", names.version
    yield "kernel", "architecture", names.machine
    words = (text("/proc/cmdline") or "").split()
    line = [re.sub(r"=.*", "=(own)", word) if _OWN_ARGUMENT.match(word) else word for word in words]
    yield "kernel", "command line", " ".join(line)
    waits = any(map(os.path.exists, ("/run/reboot-required", "/var/run/reboot-required")))
    yield "kernel", "reboot pending", "yes" if waits else "no"
    for path in folder_paths("/boot"):
        name = os.path.basename(path)
        if name.startswith("vmlinuz-"):
            yield "kernel", f"installed {name.removeprefix('vmlinuz-')}", "yes"


def firmware(_: object) -> Facts:
    """Yield the versions of the machine's firmware and of its network adapters."""
    for name in _FIRMWARE:
        value = text(f"/sys/class/dmi/id/{name}")
        if value:
            yield "firmware", name.replace("_", " "), value
    for adapter in folder_paths("/sys/class/infiniband"):
        version = text(f"{adapter}/fw_ver")
        if version:
            yield "firmware", f"adapter {os.path.basename(adapter)}", version


def driver(question: dict[str, Any]) -> Facts:
    """Yield values of the driver, of its loaded module, which may differ, and of CDI files."""
    gpu_facts = gpu()
    yield "driver", "nvidia-smi", gpu_facts.pop("fault", "answers")
    for name, value in gpu_facts.items():
        yield "driver", _GPU.get(name, "highest CUDA"), value
    loaded_module = text("/proc/driver/nvidia/version") or ""
    module = re.search(r"Module +(?:for \S+ +)?(\d[\d.]+)", loaded_module)
    if module:
        yield "driver", "loaded module", module[1]
    for path in _cdi_files():
        yield "CDI", path, seal_file(question["key"], path)
    for path, made_for in cdi_drivers().items():
        yield "CDI driver", path, made_for or UNTOLD


def software_releases(question: dict[str, Any]) -> Facts:
    """Yield releases of DGX OS, the base system, the system's Python and CUDA's toolkit."""
    release_facts = dgx_release()
    for name, value in release_facts.items():
        if name not in _OWN_RELEASE:
            # Each update appends its version, and the last one counts.
            is_updated = name in _FACTORY and "DGX_OTA_VERSION" in release_facts
            yield "DGX factory" if is_updated else "DGX OS", name, value
    for name, value in pairs("/etc/os-release"):
        if name in ("ID", "VERSION_ID", "PRETTY_NAME"):
            yield "DGX OS", f"os-release {name}", value
    yield "DGX OS", "python3", os.path.realpath("/usr/bin/python3")
    folder = os.path.realpath("/usr/local/cuda")
    if os.path.isdir(folder):
        yield "CUDA", "/usr/local/cuda", folder
    for name, version in cuda_toolkit_releases().items():
        yield "CUDA", name, version
    listing = "/usr/local/cuda/version.json"
    if os.path.isfile(listing):
        yield "CUDA", "version.json", seal_file(question["key"], listing)


def memory_and_mounts(_: object) -> Facts:
    """Yield memory, swap, processors and their governor, transparent huge pages, mounted disks."""
    for size in meminfo("MemTotal").values():
        yield "memory", "MemTotal GiB", f"{size / 2**30:.1f}"
    for line in lines_of_file("/proc/swaps")[1:]:
        name, kind, kib, *_ = line.split()
        yield "memory", f"swap {name}", f"{kind} {int(kib) / 2**20:.1f} GiB"
    yield "memory", "processors", os.cpu_count()
    for path in ("enabled", "defrag"):
        match = re.search(r"\[(\w+)\]", text(f"/sys/kernel/mm/transparent_hugepage/{path}") or "")
        if match:
            yield "memory", f"huge pages {path}", match[1]
    cores = folder_paths("/sys/devices/system/cpu")
    governors = {text(f"{path}/cpufreq/scaling_governor") for path in cores}
    yield "memory", "governor", " ".join(sorted(filter(None, governors))) or "none"
    for line in lines_of_file("/proc/self/mounts"):
        device, place, kind, options, *_ = line.split()
        if device.startswith("/dev/") and not place.startswith(
            ("/var/lib/docker/", "/proc", "/sys")
        ):
            yield "mount", place, f"{kind} {options}"


def time_and_zone(_: object) -> Facts:
    """Yield the time, seconds since 1970, and its zone."""
    yield "clock now", "seconds", time.time()
    yield "clock", "zone", os.path.realpath("/etc/localtime").partition("zoneinfo/")[2] or "none"


def settings(question: dict[str, Any]) -> Facts:
    """Yield kernel settings in force: those "names", and with "others" all that affect engines."""
    keys = {*question["names"], *(_sysctls_affecting_engines() if question["others"] else ())}
    for name in sorted(keys):
        value = original_state.present_kernel_setting(Path("/"), name)
        if value is not None:
            yield "sysctl", name, value


def _sysctls_affecting_engines() -> set[str]:
    """Return the names of this kernel's settings that affect engines."""
    keys = {f"net.ipv4.{name}" for name in _NET} | {f"kernel.{name}" for name in _KERNEL}
    for folder in ("/proc/sys/vm", "/proc/sys/net/core"):
        keys |= {path.removeprefix("/proc/sys/").replace("/", ".") for path in paths_below(folder)}
    return keys - _VARYING


_NET = ("ip_forward", "tcp_rmem", "tcp_wmem", "tcp_congestion_control", "tcp_mtu_probing")
_KERNEL = (
    *("core_pattern", "dmesg_restrict", "numa_balancing", "panic", "panic_on_oops", "pid_max"),
    *("perf_event_paranoid", "shmmax", "sysrq", "unprivileged_userns_clone", "yama.ptrace_scope"),
)
# They count or trigger something, so their value is no setting.
_VARYING = {
    *("vm.compact_memory", "vm.drop_caches", "vm.stat_refresh", "net.core.flow_limit_cpu_bitmap"),
    *("net.core.netdev_rss_key", "vm.numa_zonelist_order"),
}
