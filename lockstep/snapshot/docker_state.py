"""Docker: its daemon, images, containers and their restart policies, volumes."""

from __future__ import annotations

import shutil
import urllib.parse
from pathlib import Path
from typing import Any

from lockstep.onhost.docker import docker_api
from lockstep.snapshot.collected import Collected, Unreadable

SOCKET = Path("/run/docker.sock")
# As in the probe `preflight`: what `docker run --gpus all` looks for, and where.
_HOOKS = ("nvidia-container-runtime-hook", "nvidia-cdi-hook")
_DEVICE = "nvidia.com/gpu=all"
_DAEMON_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INFO = {
    "ServerVersion": "version",
    "Driver": "storage driver",
    "CgroupDriver": "cgroup driver",
    "CgroupVersion": "cgroup version",
    "DefaultRuntime": "default runtime",
    "LoggingDriver": "log driver",
    "LiveRestoreEnabled": "live restore",
    "DockerRootDir": "folder",
}


def daemon(found: Collected) -> None:
    """Everything about Docker, asked at its socket."""
    docker = docker_api.Docker(SOCKET, 20.0)
    try:
        _daemon(found, docker.json("GET", "/info"))
        _images(found, docker)
        _containers(found, docker)
        for volume in docker.json("GET", "/volumes")["Volumes"] or []:
            if len(volume["Name"]) != 64:
                found.put("volume", volume["Name"], volume["Driver"])
    except (docker_api.Unreachable, docker_api.DockerError) as fault:
        raise Unreadable(str(fault)) from fault


def _daemon(found: Collected, info: dict[str, Any]) -> None:
    for key, name in _INFO.items():
        found.put("docker", name, info.get(key))
    for name in info.get("Runtimes") or {}:
        found.put("docker", f"runtime {name}", "present")
    for name in _HOOKS:
        if shutil.which(name, path=_DAEMON_PATH):
            found.put("docker", f"hook {name}", "present")
    # Others are named by a GPU's own serial.
    if _DEVICE in [device["ID"] for device in info.get("DiscoveredDevices") or []]:
        found.put("docker", f"device {_DEVICE}", "present")
    registries = info.get("RegistryConfig") or {}
    for name, entry in (registries.get("IndexConfigs") or {}).items():
        if not entry.get("Secure", True):
            found.put("docker", f"plain registry {name}", "trusted")
    for mirror in registries.get("Mirrors") or []:
        found.put("docker", f"mirror {mirror}", "present")
    # The URL of a proxy may hold a password.
    for key in ("HttpProxy", "HttpsProxy", "NoProxy"):
        found.put("docker", key, found.seal(info[key].encode()) if info.get(key) else "none")


def _images(found: Collected, docker: docker_api.Docker) -> None:
    wanted = set(found.asked["images"])
    for image in docker.json("GET", "/images/json"):
        digests = set(image.get("RepoDigests") or [])
        if digests & wanted:
            path = f"/images/{urllib.parse.quote(image['Id'], safe='')}/json"
            architecture = docker.json("GET", path)["Architecture"]
            for reference in digests & wanted:
                found.put("image", reference, architecture)
        else:
            for name in image.get("RepoTags") or digests:
                if name != "<none>:<none>":
                    found.put("other image", name, image["Id"][:19])


def _containers(found: Collected, docker: docker_api.Docker) -> None:
    ours = {unit.removesuffix(".service") for unit in found.asked["units"]}
    for container in docker.json("GET", "/containers/json", {"all": "1"}):
        name = container["Names"][0].lstrip("/")
        inspected = docker.json("GET", f"/containers/{container['Id']}/json")
        policy = inspected["HostConfig"]["RestartPolicy"]["Name"] or "no"
        if name in ours:
            found.put("restart policy", name, policy)
        else:
            found.put("other container", name, f"{container['Image']}, restart {policy}")
