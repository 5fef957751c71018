"""The facts about a host that preflight needs before a deploy."""

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
from lockstep.onhost.facts.reader_helpers import document, folder_paths, text
from lockstep.onhost.system import apt_lock_wait
from lockstep.onhost.systemd import units

_MODELS = "/etc/lockstep/models.json"
# An update of DGX OS that runs at every boot if its mark is missing, and an update of DGX OS can
# remove the mark. As operators found both on their Sparks (facts of a Spark, 2026-11-22).
ONCE = "nvidia-spark-run-apt-upgrade-once.service"
_DONE = "/var/lib/nvidia-spark-run-apt-upgrade-once/done"
# A pattern matches only units that systemd has loaded; a name would load one that is off.
_DAILY = "apt-daily*.service"
_LEASE = ".client.json"


def read(question: dict[str, Any]) -> dict[str, Any]:
    """Return all facts; they are read at the same time, because most wait for other programs.

    Args:
        question: "paths" whose disk counts, "needs" (content to fetch → the folders and files that
            show that it is here), "reach" (address → content to fetch from it; an address is not
            tried if none of that is needed any more), "packages", "ports", "checkpoints", "images",
            "cache", "accounts", "sysctls", "fabric", "docker", "docker_client" (the program that
            units call), "netplan" (its file), "tls" (see there).
    """
    # At the same time, because they wait for other programs, and each silent address takes its
    # time-out.
    with ThreadPoolExecutor(16) as pool:
        futures: dict[str, Future[Any]] = {
            "cuda": pool.submit(machine.cuda_toolkit_releases),
            "gpu": pool.submit(machine.gpu),
            "updates": pool.submit(updates),
            "unfinished": pool.submit(packages.unfinished_packages, question["packages"]),
            "tls": pool.submit(tls.read, question["tls"]),
            "earlyoom": pool.submit(packages.installed_or_candidate_version, "earlyoom"),
            "units_up": pool.submit(_running_model_units),
            "gpu_held": pool.submit(gpu_holders.deployed_host_sentences, None),
        }
        engine = docker.read({**question["docker"], "images": list(question["images"].values())})
        images = engine.get("images", [])
        lacking = [
            *(
                name
                for name, folders in question["needs"].items()
                if not _is_every_file_there(folders)
            ),
            *(name for name, reference in question["images"].items() if reference not in images),
        ]
        urls = [url for url, needs in question["reach"].items() if set(needs) & set(lacking)]
        reachable = dict(zip(urls, pool.map(network.connection_fault, urls), strict=True))
    folders = [*question["paths"], engine.get("root") or "/var/lib"]
    names = [os.path.basename(path) for path in folder_paths("/sys/class/net")]
    return {
        **{name: answer.result() for name, answer in futures.items()},
        "architecture": platform.machine(),
        "dgx": machine.dgx_release(),
        "system": machine.os_release_name(),
        "docker": engine if "fault" in engine else {**engine, "cdi": machine.cdi_drivers()},
        "docker_ways": docker.dockers_of_host(
            question["docker_client"], answers="fault" not in engine
        ),
        "kernel": {
            "release": platform.release(),
            "command_line": text("/proc/cmdline"),
            "cma": machine.meminfo("CmaTotal", "CmaFree"),
        },
        "memory": machine.meminfo("MemTotal", "MemAvailable"),
        "min_free_kib": int(text("/proc/sys/vm/min_free_kbytes") or 0),
        "disks": {path: _free_space(path) for path in folders},
        "listeners": network.listeners(question["ports"]),
        "reach": reachable,
        "unknown_sysctls": machine.unknown_sysctls(question["sysctls"]),
        "unknown_accounts": [name for name in question["accounts"] if not accounts.is_known(name)],
        "fabric": {
            "absent": [name for name in question["fabric"] if name not in names],
            "known": names,
            "netplan": shutil.which("netplan") is not None,
            "wireless": ""
            if os.path.exists(question["netplan"])
            else network.wireless_default_interface(),
        },
        "checkpoints": _blob_sizes(question["cache"], question["checkpoints"]),
        "lacking": lacking,
        "leases": _deploys_with_lease(),
        "identity": _identity(),
        "units_held": os.path.exists(_MODELS),
        "named": (document(_MODELS) or {}).get("name", ""),
        "time": time.time(),
    }


def _free_space(path: str) -> dict[str, int]:
    """Return the "device" of a folder, which need not exist yet, and its "free" bytes."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    free = os.statvfs(path)
    return {"device": os.stat(path).st_dev, "free": free.f_bavail * free.f_frsize}


def _blob_sizes(cache: str, checkpoints: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the bytes of each blob on disk per hub repository, unfinished ones included."""
    present_files: dict[str, dict[str, int]] = {}
    for model in checkpoints:
        folder = os.path.join(cache, "hub", "models--" + model.replace("/", "--"), "blobs")
        try:
            present_files[model] = {
                entry.name: entry.stat().st_size for entry in os.scandir(folder)
            }
        except OSError:
            present_files[model] = {}
    return present_files


def _is_every_file_there(folders: dict[str, list[str]]) -> bool:
    """Tell whether every file is in its folder."""
    return all(
        os.path.exists(os.path.join(folder, file))
        for folder, files in folders.items()
        for file in files
    )


def _identity() -> dict[str, Any]:
    """Return this host's identity: its machine-id, as a hash, and fingerprints of its keys."""
    machine = text("/etc/machine-id")
    keys = []
    for path in sorted(glob.glob("/etc/ssh/ssh_host_*_key.pub")):
        words = (text(path) or "").split()
        try:
            digest = hashlib.sha256(base64.b64decode(words[1])).digest()
        except (ValueError, IndexError):
            continue
        keys.append(f"{words[0]} SHA256:{base64.b64encode(digest).decode().rstrip('=')}")
    machine_hash = "" if machine is None else hashlib.sha256(machine.encode()).hexdigest()
    return {"machine_id": machine_hash, "host_keys": keys}


def updates() -> dict[str, Any]:
    """Return the state of updates.

    Returns:
        The one-shot upgrade of DGX OS ("once"), the running ones of apt's "daily" services, and the
        "holder" of a lock of apt now, with the evidence, or null.
    """
    once = units.units_by_name([ONCE])[ONCE]
    holder = apt_lock_wait.apt_lock_holder(layout.Paths())
    return {
        "once": {
            "state": once.file_state,
            "running": once.active == "activating",
            "done": os.path.exists(_DONE),
        },
        "daily": [
            name for name, unit in units.loaded_units(_DAILY).items() if unit.active == "activating"
        ],
        "holder": holder and {"who": str(holder), "unit": holder.unit, "remedy": holder.remedy},
    }


def _running_model_units() -> list[str]:
    """Return units of our models that are not off: the memory that they hold is not available."""
    models = (document(_MODELS) or {}).get("models", {})
    names = [model["unit"] for model in models.values()]
    if not names:
        return []
    # `units_by_name` would have systemd read the files of a unit that is off.
    return [name for name, unit in units.loaded_units(*names).items() if unit.up]


def _deploys_with_lease() -> list[str]:
    """Return the deploys in which this host may copy; a killed deploy leaves its lease behind."""
    names = map(os.path.basename, folder_paths("/run/lockstep/peers"))
    return [name.removesuffix(_LEASE) for name in names if name.endswith(_LEASE)]
