"""What preflight must know of a host. Argument: {"paths", "needs", "reach", "ports", "models",
"images", "cache", "accounts", "fabric", "docker"}.

"needs" names the files that show that something is here, "reach" what would be fetched from each
address: one from which nothing is needed any more is not tried."""

from __future__ import annotations

import base64
import glob
import hashlib
import json
import os
import platform
import pwd
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lockstep.onhost.docker import docker_api

SOCKET = "/run/docker.sock"
# Where systemd lets Docker's daemon look for programs: another account's PATH says nothing of it.
HOOKS = ("nvidia-container-runtime-hook", "nvidia-cdi-hook")
DAEMON_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(*argv: str) -> tuple[int, str, str]:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        return 127, "", str(fault)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def release() -> dict[str, str]:
    """KEY="value" lines of /etc/dgx-release; {} where there is none."""
    try:
        with open("/etc/dgx-release", encoding="utf-8") as lines:
            pairs = [line.strip().partition("=") for line in lines if "=" in line]
    except OSError:
        return {}
    return {key: value.strip('"') for key, _, value in pairs}


def cuda() -> dict[str, Any]:
    """Release of the toolkit ("13.0") and whether ptxas runs."""
    code, text, _ = run("/usr/local/cuda/bin/nvcc", "--version")
    found = re.search(r"release (\d+\.\d+)", text)
    ptxas, _, _ = run("/usr/local/cuda/bin/ptxas", "--version")
    return {"release": found[1] if code == 0 and found else None, "ptxas": ptxas == 0}


def gpu() -> dict[str, str]:
    fields = "name,driver_version,compute_cap"
    code, text, fault = run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    if code != 0 or not text:
        return {"fault": (fault or text or f"nvidia-smi ended with {code}")[:200]}
    return dict(zip(fields.split(","), (part.strip() for part in text.splitlines()[0].split(","))))


def docker(images: list[str], names: dict[str, Any]) -> dict[str, Any]:
    daemon = docker_api.Docker(Path(SOCKET), timeout=20)
    try:
        info = daemon.json("GET", "/info")
        here = daemon.json("GET", "/images/json")
        strangers = foreign(daemon, names)
    except (docker_api.Unreachable, docker_api.DockerError) as fault:
        return {"fault": str(fault)}
    held = {digest for image in here for digest in image.get("RepoDigests") or []}
    return {
        "version": info.get("ServerVersion"),
        "cdi": cdi(),
        "hooks": [name for name in HOOKS if shutil.which(name, path=DAEMON_PATH)],
        "devices": [each["ID"] for each in info.get("DiscoveredDevices") or []],
        "images": [reference for reference in images if reference in held],
        "foreign": strangers,
        "root": info.get("DockerRootDir"),
    }


def foreign(daemon: docker_api.Docker, asked: dict[str, Any]) -> dict[str, Any]:
    """Containers and volumes of the names that a deploy uses, and that none has made.

    A container with the host's ports that it has, and its id. Ours say so by a label. Those of a
    deploy before there was a label are told by what that deploy has written.
    """
    label = asked["label"]
    text = {unit: written(unit, asked["mark"]) for unit in asked["containers"]}
    containers = {}
    for found in daemon.json("GET", "/containers/json", {"all": "1"}):
        for name in {each.lstrip("/") for each in found["Names"]} & set(text):
            earlier = text[name] and label not in text[name]
            if label not in (found.get("Labels") or {}) and not earlier:
                ports = {each["PublicPort"] for each in found["Ports"] if "PublicPort" in each}
                containers[name] = {"id": found["Id"], "ports": sorted(ports)}
    volumes = [
        found["Name"]
        for found in daemon.json("GET", "/volumes")["Volumes"] or []
        if found["Name"] in asked["volumes"]
        and label not in (found.get("Labels") or {})
        and not any(f"source={found['Name']},target=" in each for each in text.values())
    ]
    return {"containers": containers, "volumes": volumes}


def written(unit: str, mark: str) -> str:
    """Text of the unit that an earlier deploy has written, and of the launcher that it starts."""
    text = read(f"/etc/systemd/system/{unit}.service")
    if mark not in text:
        return ""
    launcher = re.search(r"^ExecStart=(/\S+)$", text, re.MULTILINE)
    return text + (read(launcher[1]) if launcher else "")


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def cdi() -> dict[str, str]:
    """File that offers NVIDIA's GPU as a CDI device → driver that it was made for, "" untold."""
    found = {}
    for folder in ("/etc/cdi", "/var/run/cdi"):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            path = os.path.join(folder, name)
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    content = file.read()
            except OSError:
                continue
            if "nvidia.com/gpu" in content:
                made_for = re.search(r"libcuda\.so\.(\d+\.[\d.]*\d)", content)
                found[path] = made_for[1] if made_for else ""
    return found


def existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    return path


def disk(path: str) -> dict[str, int]:
    at = existing(path)
    stat = os.statvfs(at)
    return {"device": os.stat(at).st_dev, "free": stat.f_bavail * stat.f_frsize}


def meminfo(*keys: str) -> dict[str, int]:
    """Bytes of those that the kernel tells."""
    with open("/proc/meminfo", encoding="utf-8") as lines:
        pairs = dict(line.split(":", 1) for line in lines)
    return {key: int(pairs[key].split()[0]) * 1024 for key in keys if key in pairs}


def kernel() -> dict[str, Any]:
    with open("/proc/cmdline", encoding="utf-8") as text:
        line = text.read().strip()
    return {
        "release": platform.release(),
        "command_line": line,
        "cma": meminfo("CmaTotal", "CmaFree"),
    }


def listeners(ports: set[int]) -> dict[str, dict[str, str]]:
    """Port → who listens on it: {"process", "unit"}; only for the ports asked about."""
    inodes: dict[str, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="utf-8") as lines:
                rows = [line.split() for line in list(lines)[1:]]
        except OSError:
            continue
        for row in rows:
            port = int(row[1].rsplit(":", 1)[1], 16)
            if row[3] == "0A" and port in ports:
                inodes[row[9]] = port
    if not inodes:
        return {}
    found = {str(port): {"process": "unknown", "unit": ""} for port in inodes.values()}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                link = os.readlink(f"/proc/{pid}/fd/{fd}")
                if link.startswith("socket:[") and link[8:-1] in inodes:
                    with open(f"/proc/{pid}/comm", encoding="utf-8") as text:
                        process = text.read().strip()
                    with open(f"/proc/{pid}/cgroup", encoding="utf-8") as text:
                        cgroup = text.read().strip().splitlines()[-1]
                    place = cgroup.rsplit(":", 1)[-1]
                    found[str(inodes[link[8:-1]])] = {"process": process, "unit": place}
        except OSError:
            continue
    return found


def reach(url: str) -> str | None:
    """None when a TCP connection to the URL's host can be made, else what failed."""
    parts = urllib.parse.urlsplit(url)
    if not parts.hostname:
        return None
    port = parts.port or {"https": 443, "git": 9418}.get(parts.scheme, 80)
    try:
        with socket.create_connection((parts.hostname, port), timeout=8):
            return None
    except OSError as fault:
        return str(fault)


def present(cache: str, models: list[str]) -> dict[str, dict[str, int]]:
    """Per hub repository, name of each blob on disk → bytes, unfinished ones included."""
    found: dict[str, dict[str, int]] = {}
    for model in models:
        folder = os.path.join(cache, "hub", "models--" + model.replace("/", "--"), "blobs")
        try:
            found[model] = {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
        except OSError:
            found[model] = {}
    return found


def whole(folders: dict[str, list[str]]) -> bool:
    """Whether every file is in its folder."""
    return all(
        os.path.exists(os.path.join(folder, file))
        for folder, files in folders.items()
        for file in files
    )


def known(account: str) -> bool:
    try:
        pwd.getpwnam(account)
    except KeyError:
        return False
    return True


def fabric(asked: list[str]) -> dict[str, Any]:
    names = sorted(os.listdir("/sys/class/net"))
    absent = [name for name in asked if name not in names]
    return {"absent": absent, "known": names, "netplan": shutil.which("netplan") is not None}


def identity() -> dict[str, Any]:
    """What should be this host's alone: its machine-id, as a hash, and fingerprints of its keys."""
    try:
        with open("/etc/machine-id", "rb") as file:
            machine = hashlib.sha256(file.read().strip()).hexdigest()
    except OSError:
        machine = ""
    keys = []
    for path in sorted(glob.glob("/etc/ssh/ssh_host_*_key.pub")):
        with open(path, encoding="utf-8", errors="replace") as file:
            words = file.read().split()
        try:
            digest = hashlib.sha256(base64.b64decode(words[1])).digest()
        except (ValueError, IndexError):
            continue
        keys.append(f"{words[0]} SHA256:{base64.b64encode(digest).decode().rstrip('=')}")
    return {"machine_id": machine, "host_keys": keys}


def updates() -> dict[str, Any]:
    """The one-shot upgrade of DGX OS, and which of apt's daily services run.

    It runs at every boot at which its mark is not there, and an update of DGX OS can remove the
    mark. As operators found both on their Sparks (facts of a Spark, 2026-11-22).
    """
    once = "nvidia-spark-run-apt-upgrade-once.service"
    daily = ("apt-daily.service", "apt-daily-upgrade.service")
    _, text, _ = run("systemctl", "show", "--property=Id,UnitFileState,ActiveState", once, *daily)
    blocks = (
        dict(line.split("=", 1) for line in block.splitlines()) for block in text.split("\n\n")
    )
    units = {block.get("Id"): block for block in blocks}
    found = units.get(once, {})
    return {
        "once": {
            "state": found.get("UnitFileState", ""),
            "running": found.get("ActiveState") == "activating",
            "done": os.path.exists("/var/lib/nvidia-spark-run-apt-upgrade-once/done"),
        },
        "daily": [name for name in daily if units.get(name, {}).get("ActiveState") == "activating"],
    }


def package(name: str) -> str:
    """Version of a Debian package: the installed one, else the archive's candidate; "" for none."""
    _, text, _ = run("dpkg-query", "-W", "-f", "${Version}", name)
    if text:
        return text
    _, text, _ = run("apt-cache", "show", "--no-all-versions", name)
    found = re.search(r"^Version: (\S+)$", text, re.MULTILINE)
    return found[1] if found else ""


def up() -> list[str]:
    """Units of Lockstep's own targets that are not off: what they hold is not available now."""
    try:
        with open("/etc/lockstep/targets.json", encoding="utf-8") as file:
            units = [target["unit"] for target in json.load(file)["targets"].values()]
    except (OSError, ValueError, KeyError):
        return []
    if not units:
        return []
    # Of a unit that is off, `show` would have systemd read its files first.
    _, text, _ = run("systemctl", "list-units", "--all", "--plain", "--no-legend", "--", *units)
    states = {row.split()[0]: row.split()[2] for row in text.splitlines()}
    return [unit for unit, state in states.items() if state not in ("inactive", "failed")]


def leases() -> list[str]:
    """Deploys that this host may copy in; one that was killed leaves its own behind."""
    end = ".client.json"
    folder = "/run/lockstep/peers"
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [name.removesuffix(end) for name in names if name.endswith(end)]


def main(asked: dict[str, Any]) -> dict[str, Any]:
    # At once: they wait for other programs, and each address that is silent takes its time-out.
    with ThreadPoolExecutor(16) as pool:
        said: dict[str, Future[Any]] = {
            "cuda": pool.submit(cuda),
            "gpu": pool.submit(gpu),
            "updates": pool.submit(updates),
            "earlyoom": pool.submit(package, "earlyoom"),
            "units_up": pool.submit(up),
        }
        engine = docker(list(asked["images"].values()), asked["docker"])
        held = engine.get("images", [])
        lacking = [
            *(name for name, folders in asked["needs"].items() if not whole(folders)),
            *(name for name, reference in asked["images"].items() if reference not in held),
        ]
        urls = [url for url, needs in asked["reach"].items() if set(needs) & set(lacking)]
        reached = dict(zip(urls, pool.map(reach, urls)))
    return {
        **{name: answer.result() for name, answer in said.items()},
        "architecture": platform.machine(),
        "dgx": release(),
        "docker": engine,
        "kernel": kernel(),
        "memory": meminfo("MemTotal", "MemAvailable"),
        "disks": {path: disk(path) for path in [*asked["paths"], engine.get("root") or "/var/lib"]},
        "listeners": listeners(set(asked["ports"])),
        "reach": reached,
        "unknown_accounts": [name for name in asked["accounts"] if not known(name)],
        "fabric": fabric(asked["fabric"]),
        "models": present(asked["cache"], asked["models"]),
        "lacking": lacking,
        "leases": leases(),
        "identity": identity(),
        "units_held": os.path.exists("/etc/lockstep/targets.json"),
        "time": time.time(),
    }
