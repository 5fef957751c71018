"""Kernel, firmware, driver, DGX OS, CUDA, memory, disks and clock."""

from __future__ import annotations

import os
import re
import time

from lockstep.snapshot.collected import Collected, below, listed, run, text

# A CDI file that names no library of the driver by its version.
UNTOLD = "untold"
# What is each machine's own, and no sign of another state.
_OWN_RELEASE = {"DGX_SERIAL_NUMBER", "DGX_OTA_DATE"}
# What the factory installed: no state of now where an update has come since.
_FACTORY = {"DGX_SWBUILD_DATE", "DGX_SWBUILD_VERSION", "DGX_COMMIT_ID"}
_OWN_ARGUMENT = re.compile(r"^(root|resume|cryptdevice|BOOT_IMAGE|initrd)=")
_FIRMWARE = ("bios_version", "bios_date", "ec_firmware_release", "product_name", "board_name")
_GPU = {
    "name": "GPU",
    "driver_version": "version",
    "compute_cap": "compute capability",
    "vbios_version": "VBIOS",
}


def kernel(found: Collected) -> None:
    """The running kernel, its command line, and whether another one waits for a boot."""
    names = os.uname()
    found.put("kernel", "release", names.release)
    found.put("kernel", "build", names.version)
    found.put("kernel", "architecture", names.machine)
    words = (text("/proc/cmdline") or "").split()
    line = [re.sub(r"=.*", "=(own)", word) if _OWN_ARGUMENT.match(word) else word for word in words]
    found.put("kernel", "command line", " ".join(line))
    waits = any(map(os.path.exists, ("/run/reboot-required", "/var/run/reboot-required")))
    found.put("kernel", "reboot pending", "yes" if waits else "no")
    for path in listed("/boot"):
        name = os.path.basename(path)
        if name.startswith("vmlinuz-"):
            found.put("kernel", f"installed {name.removeprefix('vmlinuz-')}", "yes")


def firmware(found: Collected) -> None:
    """Versions that the machine's own firmware and network adapters tell."""
    for name in _FIRMWARE:
        value = text(f"/sys/class/dmi/id/{name}")
        if value:
            found.put("firmware", name.replace("_", " "), value)
    for adapter in listed("/sys/class/infiniband"):
        version = text(f"{adapter}/fw_ver")
        if version:
            found.put("firmware", f"adapter {os.path.basename(adapter)}", version)


def driver(found: Collected) -> None:
    """What the driver says, and whether the loaded module is the one of its files."""
    done = run("nvidia-smi", f"--query-gpu={','.join(_GPU)}", "--format=csv,noheader")
    if done.returncode != 0:
        # A driver that was updated and not yet loaded says so here.
        said = " ".join((done.stdout + done.stderr).split())[:160]
        found.put("driver", "nvidia-smi", said or f"ended with {done.returncode}")
    else:
        found.put("driver", "nvidia-smi", "answers")
        values = [part.strip() for part in done.stdout.splitlines()[0].split(",")]
        for name, value in zip(_GPU.values(), values, strict=False):
            found.put("driver", name, value)
    module = re.search(
        r"Module +(?:for \S+ +)?(\d[\d.]+)", text("/proc/driver/nvidia/version") or ""
    )
    if module:
        found.put("driver", "loaded module", module[1])
    specs = [path for folder in ("/etc/cdi", "/var/run/cdi") for path in listed(folder)]
    for path in specs:
        content = text(path) or ""
        found.put("CDI", path, found.seal_file(path))
        if "nvidia.com/gpu" in content:
            made_for = re.search(r"libcuda\.so\.(\d+\.[\d.]*\d)", content)
            found.put("CDI driver", path, made_for[1] if made_for else UNTOLD)


def system(found: Collected) -> None:
    """Releases of DGX OS, the base system, the system's Python and CUDA's toolkit."""
    release = text("/etc/dgx-release") or ""
    for line in release.splitlines():
        key, mark, value = line.partition("=")
        if mark and key not in _OWN_RELEASE:
            # Each update appends its version: the last one stays.
            updated = key in _FACTORY and "DGX_OTA_VERSION=" in release
            found.put("DGX factory" if updated else "DGX OS", key, value.strip('"'))
    for line in (text("/etc/os-release") or "").splitlines():
        key, mark, value = line.partition("=")
        if mark and key in ("ID", "VERSION_ID", "PRETTY_NAME"):
            found.put("DGX OS", f"os-release {key}", value.strip('"'))
    found.put("DGX OS", "python3", os.path.realpath("/usr/bin/python3"))
    cuda = os.path.realpath("/usr/local/cuda")
    if os.path.isdir(cuda):
        found.put("CUDA", "/usr/local/cuda", cuda)
    for name, pattern in (("nvcc", r"release (\d+\.\d+)"), ("ptxas", r"V(\d[\d.]+)")):
        done = run(f"/usr/local/cuda/bin/{name}", "--version")
        told = re.search(pattern, done.stdout)
        if done.returncode == 0:
            found.put("CUDA", name, told[1] if told else "runs")
    version = "/usr/local/cuda/version.json"
    if os.path.isfile(version):
        found.put("CUDA", "version.json", found.seal_file(version))


def memory(found: Collected) -> None:
    """Memory, swap, processors and their governor, transparent huge pages, mounted disks."""
    total = re.search(r"MemTotal: +(\d+)", text("/proc/meminfo") or "")
    if total:
        found.put("memory", "MemTotal GiB", f"{int(total[1]) / 2**20:.1f}")
    swaps = (text("/proc/swaps") or "").splitlines()[1:]
    for line in swaps:
        name, kind, size, *_ = line.split()
        found.put("memory", f"swap {name}", f"{kind} {int(size) / 2**20:.1f} GiB")
    found.put("memory", "processors", os.cpu_count())
    for path in ("enabled", "defrag"):
        chosen = re.search(r"\[(\w+)\]", text(f"/sys/kernel/mm/transparent_hugepage/{path}") or "")
        if chosen:
            found.put("memory", f"huge pages {path}", chosen[1])
    governors = {
        text(f"{path}/cpufreq/scaling_governor") for path in listed("/sys/devices/system/cpu")
    }
    found.put("memory", "governor", " ".join(sorted(filter(None, governors))) or "none")
    for line in (text("/proc/self/mounts") or "").splitlines():
        device, place, kind, options, *_ = line.split()
        if device.startswith("/dev/") and not place.startswith(
            ("/var/lib/docker/", "/proc", "/sys")
        ):
            found.put("mount", place, f"{kind} {options}")


def clock(found: Collected) -> None:
    """The time and its zone."""
    found.records["time"] = time.time()
    zone = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    found.put("clock", "zone", zone or "none")


def settings(found: Collected) -> None:
    """Kernel settings in force: those that the inventory names, and those that engines feel."""
    names = set(found.asked["sysctls"])
    for folder in ("/proc/sys/vm", "/proc/sys/net/core"):
        names |= {_dotted(path) for path in below(folder)}
    names |= {f"net.ipv4.{name}" for name in _NET} | {f"kernel.{name}" for name in _KERNEL}
    for name in sorted(names - _VARYING):
        value = text("/proc/sys/" + name.replace(".", "/"))
        if value is not None:
            found.put("sysctl", name, " ".join(value.split()))


def _dotted(path: str) -> str:
    return path.removeprefix("/proc/sys/").replace("/", ".")


_NET = ("ip_forward", "tcp_rmem", "tcp_wmem", "tcp_congestion_control", "tcp_mtu_probing")
_KERNEL = (
    *("core_pattern", "dmesg_restrict", "numa_balancing", "panic", "panic_on_oops", "pid_max"),
    *("perf_event_paranoid", "shmmax", "sysrq", "unprivileged_userns_clone", "yama.ptrace_scope"),
)
# They count or trigger something; their value is no setting.
_VARYING = {
    *("vm.compact_memory", "vm.drop_caches", "vm.stat_refresh", "net.core.flow_limit_cpu_bitmap"),
    *("net.core.netdev_rss_key", "vm.numa_zonelist_order"),
}
