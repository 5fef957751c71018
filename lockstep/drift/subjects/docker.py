"""Drift of Docker: its settings in force, images, containers, volumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.lock.image_reference import PLATFORMS
from lockstep.onhost.facts import docker
from lockstep.preflight.docker import way
from lockstep.resources.fact_comparison import Expectation, Kind, SubjectView

KINDS = {
    # Docker sees newly installed parts only when it starts.
    "docker": Kind(docker.daemon, mend="systemctl restart docker"),
    "image": Kind(docker.contents, "error", "deploy", scope="nothing"),
    "other image": Kind(docker.contents, "note"),
    # Only systemd starts Lockstep's containers.
    "restart policy": Kind(
        docker.contents, "error", mend="docker update --restart=no {item}", scope="nothing"
    ),
    "other container": Kind(docker.contents),
    "volume": Kind(docker.contents, "note"),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    names = [name.removesuffix(".service") for name in desired_state.unit_files]
    return {docker.contents: {"images": desired_state.images, "containers": names}}


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    architecture = PLATFORMS[desired_state.plan.settings.expected.architecture].partition("/")[2]
    for reference in desired_state.images:
        yield Expectation("image", reference, architecture)
    for name in host_view.facts.get("restart policy", {}):
        yield Expectation("restart policy", name, "no")
    docker_facts = host_view.facts.get("docker", {})
    hooks = [hook for hook in docker.HOOKS if f"hook {hook}" in docker_facts]
    devices = [item.removeprefix("device ") for item in docker_facts]
    mode = str(docker_facts.get("toolkit mode", ""))
    if way(docker_facts.get("version"), hooks, devices, mode) is None:
        refusing = docker.HOOK in hooks
        yield (
            Expectation("docker", "toolkit mode", "auto")
            if refusing
            else Expectation("docker", f"hook {docker.HOOK}")
        )
