"""Docker: its daemon, images, containers and their restart policies, volumes."""

from __future__ import annotations

import shutil
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lockstep.onhost.docker import docker_api
from lockstep.onhost.facts.reading import Facts, seal

SOCKET = Path("/run/docker.sock")
HOOK, CDI_HOOK = "nvidia-container-runtime-hook", "nvidia-cdi-hook"
#: What Docker gives a GPU to a container by; other devices are named by a serial number.
HOOKS, DEVICE = (HOOK, CDI_HOOK), "nvidia.com/gpu=all"
# Where systemd lets Docker's daemon look for programs: another account's PATH says nothing of it.
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


def read(asked: dict[str, Any]) -> dict[str, Any]:
    """Docker before a deploy: {"version", "hooks", "devices", "images", "foreign", "root"}; or the
    "fault" alone, where it does not answer. Asked: References of "images", and what `_foreign` is
    asked.
    """
    docker = docker_api.Docker(SOCKET, 20.0)
    try:
        info = docker.json("GET", "/info")
        return {
            "version": info.get("ServerVersion"),
            "hooks": _hooks(),
            "devices": _devices(info),
            "images": list(_held(docker, asked["images"])),
            "foreign": _foreign(docker, asked),
            "root": info.get("DockerRootDir"),
        }
    except (docker_api.Unreachable, docker_api.DockerError) as fault:
        return {"fault": str(fault)}


def images(references: Iterable[str]) -> dict[str, str]:
    """Reference ("REPOSITORY@sha256:…") → architecture, of the images that are here."""
    docker = docker_api.Docker(SOCKET, 20.0)
    try:
        return _held(docker, references)
    except (docker_api.Unreachable, docker_api.DockerError):
        return {}


def _held(docker: docker_api.Docker, references: Iterable[str]) -> dict[str, str]:
    listed = docker.json("GET", "/images/json")
    here = {digest for image in listed for digest in image.get("RepoDigests") or []}
    paths = {
        reference: f"/images/{urllib.parse.quote(reference, safe='')}/json"
        for reference in references
        if reference in here
    }
    return {name: docker.json("GET", path)["Architecture"] for name, path in paths.items()}


def _foreign(docker: docker_api.Docker, asked: dict[str, Any]) -> dict[str, Any]:
    """Containers and volumes of the names that a deploy uses, and that none has made: a container
    with the host's ports that it has, and its id. Ours say so by a label. Asked: names of
    "containers" and of "volumes".
    """
    containers = {}
    for found in docker.json("GET", "/containers/json", {"all": "1"}):
        for name in {each.lstrip("/") for each in found["Names"]} & set(asked["containers"]):
            if not docker_api.ours(found.get("Labels")):
                ports = {each["PublicPort"] for each in found["Ports"] if "PublicPort" in each}
                containers[name] = {"id": found["Id"], "ports": sorted(ports)}
    volumes = [
        each["Name"]
        for each in docker.json("GET", "/volumes")["Volumes"] or []
        if each["Name"] in asked["volumes"] and not docker_api.ours(each.get("Labels"))
    ]
    return {"containers": containers, "volumes": volumes}


def _hooks() -> list[str]:
    return [name for name in HOOKS if shutil.which(name, path=_DAEMON_PATH)]


def _devices(info: dict[str, Any]) -> list[str]:
    return [device["ID"] for device in info.get("DiscoveredDevices") or []]


def daemon(asked: dict[str, Any]) -> Facts:
    """Settings in force."""
    info = docker_api.Docker(SOCKET, 20.0).json("GET", "/info")
    for name, word in _INFO.items():
        yield "docker", word, info.get(name)
    for name in info.get("Runtimes") or {}:
        yield "docker", f"runtime {name}", "present"
    for name in _hooks():
        yield "docker", f"hook {name}", "present"
    if DEVICE in _devices(info):
        yield "docker", f"device {DEVICE}", "present"
    registries = info.get("RegistryConfig") or {}
    for name, entry in (registries.get("IndexConfigs") or {}).items():
        if not entry.get("Secure", True):
            yield "docker", f"plain registry {name}", "trusted"
    for mirror in registries.get("Mirrors") or []:
        yield "docker", f"mirror {mirror}", "present"
    # The URL of a proxy may hold a password.
    for name in ("HttpProxy", "HttpsProxy", "NoProxy"):
        yield "docker", name, seal(asked["key"], info[name].encode()) if info.get(name) else "none"


def contents(asked: dict[str, Any]) -> Facts:
    """Images, containers and volumes. Asked: References of "images", and the "containers" of the
    deploy's units.
    """
    docker = docker_api.Docker(SOCKET, 20.0)
    wanted = set(asked["images"])
    for reference, architecture in _held(docker, wanted).items():
        yield "image", reference, architecture
    for image in docker.json("GET", "/images/json"):
        digests = set(image.get("RepoDigests") or [])
        for name in [] if digests & wanted else image.get("RepoTags") or digests:
            if name != "<none>:<none>":
                yield "other image", name, image["Id"][:19]
    yield from _containers(docker, asked["containers"])
    for volume in docker.json("GET", "/volumes")["Volumes"] or []:
        if len(volume["Name"]) != 64:
            yield "volume", volume["Name"], volume["Driver"]


def _containers(docker: docker_api.Docker, ours: list[str]) -> Iterator[tuple[str, str, object]]:
    for container in docker.json("GET", "/containers/json", {"all": "1"}):
        name = container["Names"][0].lstrip("/")
        inspected = docker.json("GET", f"/containers/{container['Id']}/json")
        policy = inspected["HostConfig"]["RestartPolicy"]["Name"] or "no"
        if name in ours:
            yield "restart policy", name, policy
        else:
            yield "other container", name, f"{container['Image']}, restart {policy}"
