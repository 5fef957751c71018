"""What `lockstep evidence` asks a host: what the snapshot's readers find, and what only a page
needs that somebody reads.

Nothing is written, started or stopped. Everything is told as it is found: what may not be sent on
is taken out where the page is made, at one place (`lockstep.evidence.scrub`).
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.system import apt_turn
from lockstep.onhost.systemd import units
from lockstep.probes import engines, generations, link, preflight
from lockstep.snapshot import docker_state, history, machine, network, own, packages, snapshot
from lockstep.snapshot.collected import Collected, listed, owner, run, text

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
_VERSIONS = re.compile(
    r"(?:vllm|torch\w*|triton|transformers|tokenizers|numpy|flashinfer.*|mistral-common|xgrammar"
    r"|compressed-tensors|safetensors|nvidia-(?:nccl|cutlass|cudnn).*|huggingface-hub)"
)


def updates(found: Collected) -> None:
    """Every update that DGX OS has written down; `machine.system` tells the last one."""
    lines = (text("/etc/dgx-release") or "").splitlines()
    history.say(found, "updates of DGX OS", [line for line in lines if line.startswith("DGX_OTA")])


def devices(found: Collected) -> None:
    """Device files of GPU and adapters, and what nvidia-smi shows."""
    for path in (path for folder in _DEVICES for path in listed(folder)):
        if _DEVICE.match(path) and not os.path.isdir(path):
            found.put("device", path, owner(os.stat(path)))
    history.say(found, "gpu", run("nvidia-smi").stdout.splitlines())


def toolkit(found: Collected) -> None:
    """NVIDIA's toolkit for containers, and every CDI file."""
    told = run("nvidia-ctk", "--version")
    if told.returncode == 0:
        found.put("toolkit", "nvidia-ctk", told.stdout.splitlines()[0])
    for folder in ("/etc/cdi", "/var/run/cdi"):
        names = " ".join(os.path.basename(path) for path in listed(folder))
        found.put("toolkit", folder, names or "empty")


def apt(found: Collected) -> None:
    """Who has apt's locks, the upgrade that waits for a boot, and when apt ran."""
    found.put("apt now", "locks", apt_turn.holder(layout.Paths()) or "free")
    told = preflight.updates()
    found.put("apt now", "one-shot upgrade", _shown(told["once"]))
    found.put("apt now", "daily services at work", _shown(told["daily"]))
    history.apt(found)


def services(found: Collected) -> None:
    """State of the services that the first day depends on, and of the targets."""
    for name, unit in units.show([*SERVICES, *found.asked["units"]]).items():
        state = f"{unit.active} ({unit.sub}), {unit.file_state or 'static'}"
        since = f", since {history.clock(unit.since)}" if unit.since else ""
        found.put("service", name, state + since if unit.installed else unit.load)


def memory(found: Collected) -> None:
    """Memory as it is now, what is hot meanwhile, and since when the machine runs."""
    for key, size in preflight.meminfo(*_MEMORY).items():
        found.put("memory now", f"{key} GiB", f"{size / 2**30:.2f}")
    pressure = text("/proc/pressure/memory")
    if pressure:
        found.put("memory now", "pressure", pressure.replace("\n", "; "))
    up = float((text("/proc/uptime") or "0").split()[0])
    found.put("memory now", "up for", f"{up / 3600:.1f} h")
    hot = [name for name, unit in units.show(found.asked["units"]).items() if unit.up]
    found.put("memory now", "targets that are up", ", ".join(hot) or "none")


def interfaces(found: Collected) -> None:
    """Every interface that is no container's, its link and its RDMA device."""
    devices = link.rdma()
    for path in listed("/sys/class/net"):
        name = os.path.basename(path)
        told = None if name.startswith(network.VIRTUAL) else link.link(name, devices)
        if told:
            found.put("link", name, _shown(told))
    for path in listed("/sys/class/infiniband"):
        name = os.path.basename(path)
        state = text(f"{path}/ports/1/state") or "no port"
        found.put("RDMA device", name, f"{state}, {text(f'{path}/ports/1/rate') or 'no rate'}")
    hides = os.path.exists("/etc/nvidia/cx7-hotplug-enabled")
    found.put("link", "ports without a cable are hidden", "yes" if hides else "no")


def scores(found: Collected) -> None:
    """Whom the kernel kills last and first."""
    found.put("OOM score", "a session over SSH (this one)", text("/proc/self/oom_score_adj"))
    own_units = {unit: set(units.processes(unit)) for unit in found.asked["units"]}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        name = text(f"/proc/{pid}/comm") or ""
        name = next((unit for unit, pids in own_units.items() if int(pid) in pids), name)
        score = text(f"/proc/{pid}/oom_score_adj")
        if score is not None and (name in own_units or name in _PROCESSES):
            before = found.facts.get("OOM score", {}).get(name, "")
            every = dict.fromkeys((*filter(None, before.split(", ")), score))
            found.put("OOM score", name, ", ".join(sorted(every, key=int)))


def engine(found: Collected) -> None:
    """What the engines here are, and what they said when they were asked about the recipes."""
    current = os.path.join(found.asked["engines"], "current")
    home = os.path.realpath(current)
    records = [os.path.basename(path) for path in listed(engines.RECORDS)]
    names = {name.removesuffix(".json"): name.removesuffix(".json") for name in records}
    told = engines.main({"home": home, "current": current, "images": names})
    if told["current"]:
        found.put("engine", "python", told["environment"]["python"])
        for name, version in told["environment"]["distributions"].items():
            if _VERSIONS.fullmatch(name):
                found.put("engine", name, version)
        for name, commit in told["commits"].items():
            found.put("engine", f"commit of {name}", (commit or "none")[:9])
    _answered(found, "the engine in the venv", told["check"])
    for number, record in enumerate(told["images"].values(), 1):
        _answered(found, f"the engine in image {number}", record)


def _answered(found: Collected, who: str, record: Any) -> None:
    for key, value in (record or {}).items() if isinstance(record, dict) else ():
        if key != "asked":
            found.put("engine", f"{who}: {key}", _shown(value))


def deployed(found: Collected) -> None:
    """What a deploy brought the host to, and the speeds that are accepted."""
    record = generations.main({"folder": found.asked["generations"]})
    for key, value in record.items():
        found.put("deployed", key, value)
    for name, entry in _accepted().items():
        figures = {key: entry.get(key) for key in ("decode_tok_s", "runs", "recipe", "date")}
        found.put("accepted speed", name, _shown(figures))


def _accepted() -> dict[str, Any]:
    try:
        found = json.loads(text(str(layout.Paths().accepted)) or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _shown(value: Any) -> str:
    """A value of JSON in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value) or "untold"


#: Part of the host → its reader and the kinds of facts that it finds.
READERS: snapshot.Readers = {
    "driver": (machine.driver, ("driver", "CDI driver")),
    "devices": (devices, ("device",)),
    "Docker": (docker_state.daemon, ("docker",)),
    "container toolkit": (toolkit, ("toolkit",)),
    "starts": (history.starts, ()),
    "kernel's messages": (history.kernel, ()),
    "apt": (apt, ("apt now",)),
    "packages": (packages.packages, ("apt package", "apt hold")),
    "DGX OS and CUDA": (machine.system, ("DGX OS", "CUDA")),
    "updates of DGX OS": (updates, ()),
    "kernel": (machine.kernel, ("kernel",)),
    "firmware": (machine.firmware, ("firmware",)),
    "services": (services, ("service",)),
    "memory": (memory, ("memory now",)),
    "swap": (machine.memory, ("memory",)),
    "network": (interfaces, ("link", "RDMA device")),
    "OOM scores": (scores, ("OOM score",)),
    "engine": (engine, ("engine",)),
    "deployed": (deployed, ("deployed", "accepted speed")),
    # Without it nobody could tell which words name this host and the people on it.
    "own names": (own.names, ()),
}


def take(asked: dict[str, Any]) -> dict[str, Any]:
    """The evidence that `asked` describes, in the form of a snapshot."""
    return snapshot.take(asked, READERS)
