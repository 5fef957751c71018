"""What only a page needs that somebody reads (`lockstep evidence`); it asks other readers, too.

Nothing is written, started or stopped. Everything is told as it is found: what may not be sent on
is taken out where the page is made, at one place (`lockstep.evidence.scrub`).
"""

from __future__ import annotations

import os
import re
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.facts import environments, history, link, machine, network, preflight
from lockstep.onhost.facts.reading import Facts, listed, owner, rows, run, text
from lockstep.onhost.facts.records import shown
from lockstep.onhost.system import apt_turn
from lockstep.onhost.systemd import units

# Beside the targets' units. The first seven decide over apt's locks and sshd on the first day
# (facts of the field, 2026-11); the others over the GPU in containers, memory and the desktop.
SERVICES = (
    *("ssh.socket", "ssh.service", "systemd-oomd.service", *history.APT_UNITS),
    *("docker.service", "containerd.service", "earlyoom.service", "nvidia-cdi-refresh.service"),
    *("nvidia-cdi-refresh.path", "nvidia-persistenced.service", "display-manager.service"),
)
_MEMORY = (
    *("MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "AnonPages", "Shmem", "Dirty"),
    *("SReclaimable", "SUnreclaim", "SwapTotal", "SwapFree", "CmaTotal", "CmaFree"),
)
_DEVICES = ("/dev", "/dev/nvidia-caps", "/dev/infiniband", "/dev/dri")
_DEVICE = re.compile(r"/dev/(?:nvidia|infiniband/|dri/)")
_PROCESSES = ("sshd", "systemd-oomd", "earlyoom", "dockerd", "containerd", "gnome-shell", "Xorg")


def updates(_: object) -> Facts:
    """Every update that DGX OS has written down; `machine.system` tells the last one."""
    told = [line for line in rows("/etc/dgx-release") if line.startswith("DGX_OTA")]
    yield history.lines("updates of DGX OS", told)


def devices(_: object) -> Facts:
    """Device files of GPU and adapters, and what nvidia-smi shows."""
    for path in (path for folder in _DEVICES for path in listed(folder)):
        if _DEVICE.match(path) and not os.path.isdir(path):
            yield "device", path, owner(os.stat(path))
    yield history.lines("gpu", run("nvidia-smi").stdout.splitlines())


def toolkit(_: object) -> Facts:
    """NVIDIA's toolkit for containers, and every CDI file."""
    told = run("nvidia-ctk", "--version")
    if told.returncode == 0:
        yield "toolkit", "nvidia-ctk", told.stdout.splitlines()[0]
    for folder in machine.CDI:
        names = " ".join(os.path.basename(path) for path in listed(folder))
        yield "toolkit", folder, names or "empty"


def apt(_: object) -> Facts:
    """Who has apt's locks, the upgrade that waits for a boot, and when apt ran."""
    yield "apt now", "locks", apt_turn.holder(layout.Paths()) or "free"
    told = preflight.updates()
    yield "apt now", "one-shot upgrade", shown(told["once"])
    yield "apt now", "daily services at work", shown(told["daily"])
    yield from history.apt(None)


def services(asked: dict[str, Any]) -> Facts:
    """State of the services that the first day depends on, and of the targets."""
    for name, unit in units.show([*SERVICES, *asked["units"]]).items():
        state = f"{unit.active} ({unit.sub}), {unit.file_state or 'static'}"
        since = f", since {history.clock(unit.since)}" if unit.since else ""
        yield "service", name, state + since if unit.installed else unit.load


def memory(asked: dict[str, Any]) -> Facts:
    """Memory as it is now, what is hot meanwhile, and since when the machine runs."""
    for key, size in machine.meminfo(*_MEMORY).items():
        yield "memory now", f"{key} GiB", f"{size / 2**30:.2f}"
    pressure = text("/proc/pressure/memory")
    if pressure:
        yield "memory now", "pressure", pressure.replace("\n", "; ")
    up = float((text("/proc/uptime") or "0").split()[0])
    yield "memory now", "up for", f"{up / 3600:.1f} h"
    hot = [name for name, unit in units.show(asked["units"]).items() if unit.up]
    yield "memory now", "targets that are up", ", ".join(hot) or "none"


def interfaces(_: object) -> Facts:
    """Every interface that is no container's, its link and its RDMA device."""
    devices = link.rdma()
    for path in listed("/sys/class/net"):
        name = os.path.basename(path)
        told = None if name.startswith(network.VIRTUAL) else link.link(name, devices)
        if told:
            yield "link", name, shown(told)
    for path in listed("/sys/class/infiniband"):
        name = os.path.basename(path)
        state = text(f"{path}/ports/1/state") or "no port"
        yield "RDMA device", name, f"{state}, {text(f'{path}/ports/1/rate') or 'no rate'}"
    hides = os.path.exists("/etc/nvidia/cx7-hotplug-enabled")
    yield "link", "ports without a cable are hidden", "yes" if hides else "no"


def scores(asked: dict[str, Any]) -> Facts:
    """Whom the kernel kills last and first."""
    yield "OOM score", "a session over SSH (this one)", text("/proc/self/oom_score_adj")
    own_units = {unit: set(units.processes(unit)) for unit in asked["units"]}
    found: dict[str, set[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        name = text(f"/proc/{pid}/comm") or ""
        name = next((unit for unit, pids in own_units.items() if int(pid) in pids), name)
        score = text(f"/proc/{pid}/oom_score_adj")
        if score is not None and (name in own_units or name in _PROCESSES):
            found.setdefault(name, set()).add(int(score))
    for name, every in found.items():
        yield "OOM score", name, ", ".join(map(str, sorted(every)))


def engine(asked: dict[str, Any]) -> Facts:
    """What the engines here are, and what they said when they were asked about the recipes. Asked:
    The folder of the "engines", and a pattern of the "packages" that count.
    """
    current = os.path.join(asked["engines"], "current")
    names = [os.path.basename(path) for path in listed(environments.RECORDS)]
    records = {name: name for name in (each.removesuffix(".json") for each in names)}
    told = environments.read(
        {"home": os.path.realpath(current), "current": current, "images": records}
    )
    if told["current"]:
        yield "engine", "python", told["environment"]["python"]
        for name, version in told["environment"]["distributions"].items():
            if re.fullmatch(asked["packages"], name):
                yield "engine", name, version
        for name, commit in told["commits"].items():
            yield "engine", f"commit of {name}", (commit or "none")[:9]
    yield from _answered("the engine in the venv", told["check"])
    for number, record in enumerate(told["images"].values(), 1):
        yield from _answered(f"the engine in image {number}", record)


def _answered(who: str, record: Any) -> Facts:
    for key, value in record.items() if isinstance(record, dict) else ():
        if key not in ("asked", "taken"):
            yield "engine", f"{who}: {key}", shown(value)
