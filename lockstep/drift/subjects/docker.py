"""Drift of Docker: its settings in force, images, containers, volumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects.kind import Expectation, Kind, Seen
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.lock.image_reference import PLATFORMS
from lockstep.onhost.facts import docker
from lockstep.preflight.docker import way

KINDS = {
    # What is installed beside Docker it sees when it starts.
    "docker": Kind(docker.daemon, mend="systemctl restart docker"),
    "image": Kind(docker.contents, "error", "deploy", scope="nothing"),
    "other image": Kind(docker.contents, "note"),
    # systemd alone starts containers of ours.
    "restart policy": Kind(
        docker.contents, "error", mend="docker update --restart=no {item}", scope="nothing"
    ),
    "other container": Kind(docker.contents),
    "volume": Kind(docker.contents, "note"),
}


def questions(this: Intended) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    names = [name.removesuffix(".service") for name in this.unit_files]
    return {docker.contents: {"images": this.images, "containers": names}}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    architecture = PLATFORMS[this.plan.settings.expected.architecture].partition("/")[2]
    for reference in this.images:
        yield Expectation("image", reference, architecture)
    for name in seen.facts.get("restart policy", {}):
        yield Expectation("restart policy", name, "no")
    shown = seen.facts.get("docker", {})
    hooks = [hook for hook in docker.HOOKS if f"hook {hook}" in shown]
    devices = [item.removeprefix("device ") for item in shown]
    mode = str(shown.get("toolkit mode", ""))
    if way(shown.get("version"), hooks, devices, mode) is None:
        refusing = docker.HOOK in hooks
        yield (
            Expectation("docker", "toolkit mode", "auto")
            if refusing
            else Expectation("docker", f"hook {docker.HOOK}")
        )
