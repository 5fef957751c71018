"""Facts that only the page of `lockstep evidence` needs; this module asks other readers, too.

It writes, starts and stops nothing. It reports everything as found: one place, where the page is
made (`lockstep.evidence.scrub`), removes the parts that may not be sent on.
"""

from __future__ import annotations

import os
import re
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.facts import environments, link, logged_events, machine, network, preflight
from lockstep.onhost.facts.deploy_records import value_text
from lockstep.onhost.facts.reader_helpers import (
    Facts,
    folder_paths,
    lines_of_file,
    mode_and_owner,
    run,
    text,
)
from lockstep.onhost.system import apt_lock_wait
from lockstep.onhost.systemd import units

# Besides the models' units. The first seven decide over apt's locks and sshd on the first day
# (facts of the field, 2026-11); the others over the GPU in containers, memory and the desktop.
SERVICES = (
    *("ssh.socket", "ssh.service", "systemd-oomd.service", *logged_events.APT_UNITS),
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


def past_updates(_: object) -> Facts:
    """Yield every update that DGX OS has recorded; `machine.software_releases` has the last one."""
    release_lines = [
        line for line in lines_of_file("/etc/dgx-release") if line.startswith("DGX_OTA")
    ]
    yield logged_events.lines_fact("updates of DGX OS", release_lines)


def device_files_and_gpu(_: object) -> Facts:
    """Yield device files of GPU and adapters, and the output of nvidia-smi."""
    for path in (path for folder in _DEVICES for path in folder_paths(folder)):
        if _DEVICE.match(path) and not os.path.isdir(path):
            yield "device", path, mode_and_owner(os.stat(path))
    yield logged_events.lines_fact("gpu", run("nvidia-smi").stdout.splitlines())


def toolkit(_: object) -> Facts:
    """Yield facts about NVIDIA's toolkit for containers, and every CDI file."""
    result = run("nvidia-ctk", "--version")
    if result.returncode == 0:
        yield "toolkit", "nvidia-ctk", result.stdout.splitlines()[0]
    for folder in machine.CDI:
        names = " ".join(os.path.basename(path) for path in folder_paths(folder))
        yield "toolkit", folder, names or "empty"


def apt_activity(_: object) -> Facts:
    """Yield the holder of apt's locks, the upgrade that waits for a boot, and the runs of apt."""
    yield "apt now", "locks", apt_lock_wait.apt_lock_holder(layout.Paths()) or "free"
    pending_updates = preflight.updates()
    yield "apt now", "one-shot upgrade", value_text(pending_updates["once"])
    yield "apt now", "daily services at work", value_text(pending_updates["daily"])
    yield from logged_events.apt(None)


def services(question: dict[str, Any]) -> Facts:
    """Yield the state of the models, and of the services that the first day depends on."""
    for name, unit in units.units_by_name([*SERVICES, *question["units"]]).items():
        state = f"{unit.active} ({unit.sub}), {unit.file_state or 'static'}"
        since = f", since {logged_events.utc_text(unit.since)}" if unit.since else ""
        yield "service", name, state + since if unit.is_installed else unit.load


def memory(question: dict[str, Any]) -> Facts:
    """Yield the present memory, the hot models, and the machine's uptime."""
    for key, size in machine.meminfo(*_MEMORY).items():
        yield "memory now", f"{key} GiB", f"{size / 2**30:.2f}"
    pressure = text("/proc/pressure/memory")
    if pressure:
        yield "memory now", "pressure", pressure.replace("\n", "; ")
    up = float((text("/proc/uptime") or "0").split()[0])
    yield "memory now", "up for", f"{up / 3600:.1f} h"
    hot = [name for name, unit in units.units_by_name(question["units"]).items() if unit.up]
    yield "memory now", "models that are up", ", ".join(hot) or "none"


def interfaces(_: object) -> Facts:
    """Yield every interface that is no container's, with its link and its RDMA device."""
    device_files_and_gpu = link.rdma()
    for path in folder_paths("/sys/class/net"):
        name = os.path.basename(path)
        link_facts = (
            None
            if name.startswith(network.VIRTUAL)
            else link.interface_link(name, device_files_and_gpu)
        )
        if link_facts:
            yield "link", name, value_text(link_facts)
    for path in folder_paths("/sys/class/infiniband"):
        name = os.path.basename(path)
        state = text(f"{path}/ports/1/state") or "no port"
        yield "RDMA device", name, f"{state}, {text(f'{path}/ports/1/rate') or 'no rate'}"
    hides = os.path.exists("/etc/nvidia/cx7-hotplug-enabled")
    yield "link", "ports without a cable are hidden", "yes" if hides else "no"


def oom_scores(question: dict[str, Any]) -> Facts:
    """Yield the scores by which the kernel chooses the processes that it kills."""
    yield "OOM score", "a session over SSH (this one)", text("/proc/self/oom_score_adj")
    own_units = {unit: set(units.processes(unit)) for unit in question["units"]}
    scores_by_core: dict[str, set[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        name = text(f"/proc/{pid}/comm") or ""
        name = next((unit for unit, pids in own_units.items() if int(pid) in pids), name)
        score = text(f"/proc/{pid}/oom_score_adj")
        if score is not None and (name in own_units or name in _PROCESSES):
            scores_by_core.setdefault(name, set()).add(int(score))
    for name, every in scores_by_core.items():
        yield "OOM score", name, ", ".join(map(str, sorted(every)))


def installed_engines(question: dict[str, Any]) -> Facts:
    """Yield the engines here, and their answers about the recipes.

    `question` has the folder of the "engines", and a pattern of the "packages" that count.
    """
    current = os.path.join(question["engines"], "current")
    names = [os.path.basename(path) for path in folder_paths(environments.RECORDS)]
    records = {name: name for name in (model_name.removesuffix(".json") for model_name in names)}
    environment_facts = environments.read(
        {"home": os.path.realpath(current), "current": current, "images": records}
    )
    if environment_facts["current"]:
        yield "engine", "python", environment_facts["environment"]["python"]
        for name, version in environment_facts["environment"]["distributions"].items():
            if re.fullmatch(question["packages"], name):
                yield "engine", name, version
        for name, commit in environment_facts["commits"].items():
            yield "engine", f"commit of {name}", (commit or "none")[:9]
    yield from _check_record_facts("the engine in the venv", environment_facts["check"])
    for number, record in enumerate(environment_facts["images"].values(), 1):
        yield from _check_record_facts(f"the engine in image {number}", record)


def _check_record_facts(subject: str, record: Any) -> Facts:
    for key, value in record.items() if isinstance(record, dict) else ():
        if key not in ("asked", "taken"):
            yield "engine", f"{subject}: {key}", value_text(value)
