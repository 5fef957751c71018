"""What preflight must know of a host before a deploy."""

from __future__ import annotations

import base64
import glob
import hashlib
import os
import platform
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.engine import gpu_holders
from lockstep.onhost.facts import accounts, docker, machine, network, packages, tls
from lockstep.onhost.facts.reading import document, listed, run, states, text
from lockstep.onhost.system import apt_turn

_TARGETS = "/etc/lockstep/targets.json"
# An update of DGX OS that runs at every boot at which its mark is not there, and an update of DGX
# OS can remove the mark. As operators found both on their Sparks (facts of a Spark, 2026-11-22).
ONCE = "nvidia-spark-run-apt-upgrade-once.service"
_DONE = "/var/lib/nvidia-spark-run-apt-upgrade-once/done"
# A pattern finds those that systemd has loaded; by its name it would load one that is off.
_DAILY = "apt-daily*.service"
_SHOW = ("systemctl", "show", "--property=Id,UnitFileState,ActiveState", "--")
_LEASE = ".client.json"


def read(asked: dict[str, Any]) -> dict[str, Any]:
    """Everything; its parts are waited for at once, because each asks other programs. Asked:
    "paths" whose disk counts, "needs" (what is fetched → the folders and files that show that it is
    here), "reach" (address → what would be fetched from it: one from which nothing is needed any
    more is not tried), "packages", "ports", "models", "images", "cache", "accounts", "sysctls",
    "fabric", "docker", "docker_client" (the program that units call), "netplan" (its file), "tls"
    (see there).
    """
    # At once: they wait for other programs, and each address that is silent takes its time-out.
    with ThreadPoolExecutor(16) as pool:
        said: dict[str, Future[Any]] = {
            "cuda": pool.submit(machine.cuda),
            "gpu": pool.submit(machine.gpu),
            "updates": pool.submit(updates),
            "unfinished": pool.submit(packages.unfinished_packages, asked["packages"]),
            "tls": pool.submit(tls.read, asked["tls"]),
            "earlyoom": pool.submit(packages.candidate, "earlyoom"),
            "units_up": pool.submit(_up),
            "gpu_held": pool.submit(gpu_holders.told, None),
        }
        engine = docker.read({**asked["docker"], "images": list(asked["images"].values())})
        held = engine.get("images", [])
        lacking = [
            *(name for name, folders in asked["needs"].items() if not _whole(folders)),
            *(name for name, reference in asked["images"].items() if reference not in held),
        ]
        urls = [url for url, needs in asked["reach"].items() if set(needs) & set(lacking)]
        reached = dict(zip(urls, pool.map(network.reach, urls), strict=True))
    folders = [*asked["paths"], engine.get("root") or "/var/lib"]
    names = [os.path.basename(path) for path in listed("/sys/class/net")]
    return {
        **{name: answer.result() for name, answer in said.items()},
        "architecture": platform.machine(),
        "dgx": machine.release(),
        "system": machine.base_system(),
        "docker": engine if "fault" in engine else {**engine, "cdi": machine.cdi()},
        "docker_ways": docker.ways(asked["docker_client"], answers="fault" not in engine),
        "kernel": {
            "release": platform.release(),
            "command_line": text("/proc/cmdline"),
            "cma": machine.meminfo("CmaTotal", "CmaFree"),
        },
        "memory": machine.meminfo("MemTotal", "MemAvailable"),
        "min_free_kib": int(text("/proc/sys/vm/min_free_kbytes") or 0),
        "disks": {path: _disk(path) for path in folders},
        "listeners": network.listeners(asked["ports"]),
        "reach": reached,
        "unknown_sysctls": machine.unknown_sysctls(asked["sysctls"]),
        "unknown_accounts": [name for name in asked["accounts"] if not accounts.account(name)],
        "fabric": {
            "absent": [name for name in asked["fabric"] if name not in names],
            "known": names,
            "netplan": shutil.which("netplan") is not None,
            "wireless": "" if os.path.exists(asked["netplan"]) else network.wireless_way(),
        },
        "models": _present(asked["cache"], asked["models"]),
        "lacking": lacking,
        "leases": _leases(),
        "identity": _identity(),
        "units_held": os.path.exists(_TARGETS),
        "named": (document(_TARGETS) or {}).get("name", ""),
        "time": time.time(),
    }


def _disk(path: str) -> dict[str, int]:
    """The "device" of a folder that may be still to come, and the bytes that are "free" on it."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    free = os.statvfs(path)
    return {"device": os.stat(path).st_dev, "free": free.f_bavail * free.f_frsize}


def _present(cache: str, models: Iterable[str]) -> dict[str, dict[str, int]]:
    """Per hub repository, name of each blob on disk → bytes, unfinished ones included."""
    found: dict[str, dict[str, int]] = {}
    for model in models:
        folder = os.path.join(cache, "hub", "models--" + model.replace("/", "--"), "blobs")
        try:
            found[model] = {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
        except OSError:
            found[model] = {}
    return found


def _whole(folders: dict[str, list[str]]) -> bool:
    """Whether every file is in its folder."""
    return all(
        os.path.exists(os.path.join(folder, file))
        for folder, files in folders.items()
        for file in files
    )


def _identity() -> dict[str, Any]:
    """What should be this host's alone: its machine-id, as a hash, and fingerprints of its keys."""
    machine = text("/etc/machine-id")
    keys = []
    for path in sorted(glob.glob("/etc/ssh/ssh_host_*_key.pub")):
        words = (text(path) or "").split()
        try:
            digest = hashlib.sha256(base64.b64decode(words[1])).digest()
        except (ValueError, IndexError):
            continue
        keys.append(f"{words[0]} SHA256:{base64.b64encode(digest).decode().rstrip('=')}")
    hashed = "" if machine is None else hashlib.sha256(machine.encode()).hexdigest()
    return {"machine_id": hashed, "host_keys": keys}


def updates() -> dict[str, Any]:
    """The one-shot upgrade of DGX OS ("once"), which of apt's "daily" services run, and who has a
    lock of apt now: "holder", with what shows it, or null.
    """
    units = states(run(*_SHOW, ONCE, _DAILY).stdout)
    once = units.pop(ONCE, {})
    holder = apt_turn.holder(layout.Paths())
    return {
        "once": {
            "state": once.get("UnitFileState", ""),
            "running": once.get("ActiveState") == "activating",
            "done": os.path.exists(_DONE),
        },
        "daily": [name for name, unit in units.items() if unit.get("ActiveState") == "activating"],
        "holder": holder and {"who": str(holder), "unit": holder.unit, "remedy": holder.remedy},
    }


def _up() -> list[str]:
    """Units of Lockstep's own targets that are not off: what they hold is not available now."""
    targets = (document(_TARGETS) or {}).get("targets", {})
    units = [target["unit"] for target in targets.values()]
    if not units:
        return []
    # Of a unit that is off, `show` would have systemd read its files first.
    rows = run("systemctl", "list-units", "--all", "--plain", "--no-legend", "--", *units).stdout
    found = {row.split()[0]: row.split()[2] for row in rows.splitlines()}
    return [unit for unit, state in found.items() if state not in ("inactive", "failed")]


def _leases() -> list[str]:
    """Deploys that this host may copy in; one that was killed leaves its own behind."""
    names = map(os.path.basename, listed("/run/lockstep/peers"))
    return [name.removesuffix(_LEASE) for name in names if name.endswith(_LEASE)]
