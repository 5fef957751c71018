"""Docker: its daemon, images, containers and their restart policies, volumes."""

from __future__ import annotations

import glob
import os
import shutil
import tomllib
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lockstep.onhost.docker import docker_api
from lockstep.onhost.facts.reading import Facts, run, seal

SOCKET = Path("/run/docker.sock")
# Where the daemon of one account listens; and Docker's snap, whose daemon has the host's socket.
_ROOTLESS = "/run/user/*/docker.sock"
_SNAP, _SNAP_UNIT = "/snap/bin/docker", "snap.docker.dockerd.service"
_START = "failed to start daemon: "
HOOK, CDI_HOOK = "nvidia-container-runtime-hook", "nvidia-cdi-hook"
#: What Docker gives a GPU to a container by; other devices are named by a serial number.
HOOKS, DEVICE = (HOOK, CDI_HOOK), "nvidia.com/gpu=all"
_TOOLKIT = Path("/etc/nvidia-container-runtime/config.toml")
#: Behind the architecture of an image that no tag of ours holds.
UNHELD = ", without Lockstep's tag"
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
    """Docker before a deploy: {"version", "hooks", "devices", "mode", "images", "foreign", "root"};
    or the "fault" alone, where it does not answer. Asked: References of "images", and what
    `_foreign` is asked.
    """
    docker = docker_api.Docker(SOCKET, 20.0)
    try:
        info = docker.json("GET", "/info")
        return {
            "version": info.get("ServerVersion"),
            "hooks": _hooks(),
            "devices": _devices(info),
            "mode": _mode(),
            "images": list(_held(docker, asked["images"])),
            "foreign": _foreign(docker, asked),
            "root": info.get("DockerRootDir"),
        }
    except (docker_api.Unreachable, docker_api.DockerError) as fault:
        return {"fault": str(fault)}


def ways(client: str, *, answers: bool) -> dict[str, Any]:
    """Which Dockers there are: whether the "client" is, the account of each "rootless" daemon that
    answers, whether the "snap" runs; and what the host's own, where it does not answer, "said" when
    it failed to start.
    """
    words = ("-q", "-b", "-u", "docker.service", "-n", "50", "-o", "cat", "--no-pager")
    said = "" if answers else run("journalctl", *words).stdout
    failed = [line for line in said.splitlines() if _START in line]
    return {
        "client": os.access(client, os.X_OK),
        "rootless": [
            path.split("/")[3] for path in sorted(glob.glob(_ROOTLESS)) if _is_answering(path)
        ],
        "snap": os.path.exists(_SNAP)
        and run("systemctl", "is-active", _SNAP_UNIT).stdout.strip() == "active",
        "said": failed[-1].partition(_START)[2].strip('" ') if failed else "",
    }


def _is_answering(path: str) -> bool:
    try:
        docker_api.Docker(Path(path), 5.0).json("GET", "/info")
    except (docker_api.Unreachable, docker_api.DockerError):
        return False
    return True


def images(references: Iterable[str]) -> dict[str, str]:
    """Reference ("REPOSITORY@sha256:…") → architecture, of the images that are here; with `UNHELD`
    of those that a prune would take.
    """
    docker = docker_api.Docker(SOCKET, 20.0)
    try:
        return _held(docker, references)
    except (docker_api.Unreachable, docker_api.DockerError):
        return {}


def _held(docker: docker_api.Docker, references: Iterable[str]) -> dict[str, str]:
    listed = docker.json("GET", "/images/json")
    here = {digest: image for image in listed for digest in image.get("RepoDigests") or []}
    found = {}
    for name in references:
        if name in here:
            about = docker.json("GET", f"/images/{urllib.parse.quote(name, safe='')}/json")
            tagged = docker_api.hold_tag(name) in (here[name].get("RepoTags") or [])
            found[name] = about["Architecture"] + ("" if tagged else UNHELD)
    return found


def _is_held(image: dict[str, Any]) -> bool:
    """Whether it has a tag of ours: of a target, or of a generation that is kept."""
    ours = set(map(docker_api.hold_tag, image.get("RepoDigests") or []))
    return not ours.isdisjoint(image.get("RepoTags") or [])


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


def _mode() -> str:
    """The mode in which NVIDIA's toolkit works, "" where it is not told."""
    try:
        with _TOOLKIT.open("rb") as file:
            return str(tomllib.load(file).get("nvidia-container-runtime", {}).get("mode", ""))
    except (OSError, ValueError, AttributeError):
        return ""


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
    if mode := _mode():
        yield "docker", "toolkit mode", mode
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
        known = digests & wanted or _is_held(image)
        for name in [] if known else image.get("RepoTags") or digests:
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
