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
from lockstep.onhost.facts.reader_helpers import Facts, run, seal
from lockstep.onhost.systemd import units

SOCKET = Path("/run/docker.sock")
# The socket of one account's daemon; and Docker's snap, whose daemon has the host's socket.
_ROOTLESS = "/run/user/*/docker.sock"
_SNAP, _SNAP_UNIT = "/snap/bin/docker", "snap.docker.dockerd.service"
_START = "failed to start daemon: "
HOOK, CDI_HOOK = "nvidia-container-runtime-hook", "nvidia-cdi-hook"
#: The means by which Docker gives a GPU to a container; other devices are named by serial number.
HOOKS, DEVICE = (HOOK, CDI_HOOK), "nvidia.com/gpu=all"
_TOOLKIT = Path("/etc/nvidia-container-runtime/config.toml")
#: Follows the architecture of an image that no tag of ours holds.
UNHELD = ", without Lockstep's tag"
# Folders in which systemd lets Docker's daemon look for programs; another account's PATH differs.
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


def read(question: dict[str, Any]) -> dict[str, Any]:
    """Return Docker's state before a deploy.

    Args:
        question: References of "images", and the question of `_foreign_name_holders`.

    Returns:
        {"version", "hooks", "devices", "mode", "images", "foreign", "root"}; or the "fault" alone,
        if Docker does not answer.
    """
    docker = docker_api.Docker(SOCKET, 20.0)
    try:
        info = docker.request_json("GET", "/info")
        return {
            "version": info.get("ServerVersion"),
            "hooks": _hooks(),
            "devices": _discovered_devices(info),
            "mode": _toolkit_mode(),
            "images": list(_architectures_of_present_images(docker, question["images"])),
            "foreign": _foreign_name_holders(docker, question),
            "root": info.get("DockerRootDir"),
        }
    except (docker_api.DockerUnreachable, docker_api.DockerError) as fault:
        return {"fault": str(fault)}


def dockers_of_host(client: str, *, answers: bool) -> dict[str, Any]:
    """Return the Dockers of this host.

    Returns:
        Whether the "client" is there, the account of each "rootless" daemon that answers, and
        whether the "snap" runs. "said": the host's own daemon's message when it failed to start, if
        it does not answer.
    """
    words = ("-q", "-b", "-u", "docker.service", "-n", "50", "-o", "cat", "--no-pager")
    journal_text = "" if answers else run("journalctl", *words).stdout
    start_failures = [line for line in journal_text.splitlines() if _START in line]
    return {
        "client": os.access(client, os.X_OK),
        "rootless": [
            path.split("/")[3] for path in sorted(glob.glob(_ROOTLESS)) if _is_answering(path)
        ],
        "snap": os.path.exists(_SNAP)
        and units.units_by_name([_SNAP_UNIT])[_SNAP_UNIT].active == "active",
        "said": start_failures[-1].partition(_START)[2].strip('" ') if start_failures else "",
    }


def _is_answering(path: str) -> bool:
    try:
        docker_api.Docker(Path(path), 5.0).request_json("GET", "/info")
    except (docker_api.DockerUnreachable, docker_api.DockerError):
        return False
    return True


def image_architectures(references: Iterable[str]) -> dict[str, str]:
    """Return the architecture of the images that are here, by reference ("REPOSITORY@sha256:…").

    `UNHELD` follows it for images that a prune would remove.
    """
    docker = docker_api.Docker(SOCKET, 20.0)
    try:
        return _architectures_of_present_images(docker, references)
    except (docker_api.DockerUnreachable, docker_api.DockerError):
        return {}


def _architectures_of_present_images(
    docker: docker_api.Docker, references: Iterable[str]
) -> dict[str, str]:
    image_list = docker.request_json("GET", "/images/json")
    image_by_digest = {
        digest: image for image in image_list for digest in image.get("RepoDigests") or []
    }
    architectures = {}
    for name in references:
        if name in image_by_digest:
            about = docker.request_json("GET", f"/images/{urllib.parse.quote(name, safe='')}/json")
            is_tagged = docker_api.hold_tag(name) in (image_by_digest[name].get("RepoTags") or [])
            architectures[name] = about["Architecture"] + ("" if is_tagged else UNHELD)
    return architectures


def _has_hold_tag(image: dict[str, Any]) -> bool:
    """Tell whether an image has a tag of ours: of a model, or of a generation that is kept."""
    hold_tags = set(map(docker_api.hold_tag, image.get("RepoDigests") or []))
    return not hold_tags.isdisjoint(image.get("RepoTags") or [])


def _foreign_name_holders(docker: docker_api.Docker, question: dict[str, Any]) -> dict[str, Any]:
    """Return foreign containers and volumes with names that a deploy uses; ours have a label.

    A container has its id and the host's ports that it holds. `question` has names of "containers"
    and of "volumes".
    """
    containers = {}
    for container in docker.request_json("GET", "/containers/json", {"all": "1"}):
        for name in {container_name.lstrip("/") for container_name in container["Names"]} & set(
            question["containers"]
        ):
            if not docker_api.is_ours(container.get("Labels")):
                ports = {
                    container_name["PublicPort"]
                    for container_name in container["Ports"]
                    if "PublicPort" in container_name
                }
                containers[name] = {"id": container["Id"], "ports": sorted(ports)}
    volumes = [
        container_name["Name"]
        for container_name in docker.request_json("GET", "/volumes")["Volumes"] or []
        if container_name["Name"] in question["volumes"]
        and not docker_api.is_ours(container_name.get("Labels"))
    ]
    return {"containers": containers, "volumes": volumes}


def _hooks() -> list[str]:
    return [name for name in HOOKS if shutil.which(name, path=_DAEMON_PATH)]


def _toolkit_mode() -> str:
    """Return the mode of NVIDIA's toolkit, "" if it is not set."""
    try:
        with _TOOLKIT.open("rb") as file:
            return str(tomllib.load(file).get("nvidia-container-runtime", {}).get("mode", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _discovered_devices(info: dict[str, Any]) -> list[str]:
    return [device["ID"] for device in info.get("DiscoveredDevices") or []]


def daemon(question: dict[str, Any]) -> Facts:
    """Yield the daemon's settings in force."""
    info = docker_api.Docker(SOCKET, 20.0).request_json("GET", "/info")
    for name, word in _INFO.items():
        yield "docker", word, info.get(name)
    for name in info.get("Runtimes") or {}:
        yield "docker", f"runtime {name}", "present"
    for name in _hooks():
        yield "docker", f"hook {name}", "present"
    if mode := _toolkit_mode():
        yield "docker", "toolkit mode", mode
    if DEVICE in _discovered_devices(info):
        yield "docker", f"device {DEVICE}", "present"
    registries = info.get("RegistryConfig") or {}
    for name, entry in (registries.get("IndexConfigs") or {}).items():
        if not entry.get("Secure", True):
            yield "docker", f"plain registry {name}", "trusted"
    for mirror in registries.get("Mirrors") or []:
        yield "docker", f"mirror {mirror}", "present"
    # The URL of a proxy may hold a password.
    for name in ("HttpProxy", "HttpsProxy", "NoProxy"):
        yield (
            "docker",
            name,
            seal(question["key"], info[name].encode()) if info.get(name) else "none",
        )


def contents(question: dict[str, Any]) -> Facts:
    """Yield images, containers and volumes.

    `question` has references of "images", and the "containers" of the deploy's units.
    """
    docker = docker_api.Docker(SOCKET, 20.0)
    wanted_digests = set(question["images"])
    for reference, architecture in _architectures_of_present_images(docker, wanted_digests).items():
        yield "image", reference, architecture
    for image in docker.request_json("GET", "/images/json"):
        digests = set(image.get("RepoDigests") or [])
        is_known = digests & wanted_digests or _has_hold_tag(image)
        for name in [] if is_known else image.get("RepoTags") or digests:
            if name != "<none>:<none>":
                yield "other image", name, image["Id"][:19]
    yield from _restart_policies(docker, question["containers"])
    for volume in docker.request_json("GET", "/volumes")["Volumes"] or []:
        if len(volume["Name"]) != 64:
            yield "volume", volume["Name"], volume["Driver"]


def _restart_policies(
    docker: docker_api.Docker, own_labels: list[str]
) -> Iterator[tuple[str, str, object]]:
    for container in docker.request_json("GET", "/containers/json", {"all": "1"}):
        name = container["Names"][0].lstrip("/")
        document = docker.request_json("GET", f"/containers/{container['Id']}/json")
        policy = document["HostConfig"]["RestartPolicy"]["Name"] or "no"
        if name in own_labels:
            yield "restart policy", name, policy
        else:
            yield "other container", name, f"{container['Image']}, restart {policy}"
