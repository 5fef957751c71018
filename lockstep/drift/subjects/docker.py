"""Drift of Docker: its settings in force, images, containers, volumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects.kind import Expectation, Kind, Row, Seen
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.lock.image_reference import PLATFORMS
from lockstep.onhost.facts import docker
from lockstep.preflight.docker import way


def _restart(row: Row) -> tuple[str, ...]:
    return ("systemctl", "restart", "docker") if row.item != "version" else ()


def _image(row: Row) -> tuple[str, ...]:
    return ("docker", "rmi" if row.found else "pull", row.item)


KINDS = {
    # Its settings are in a file; Docker reads it when it starts.
    "docker": Kind(docker.daemon, mend=_restart),
    "image": Kind(docker.contents, "error", "deploy", scope="nothing"),
    "other image": Kind(docker.contents, "note", mend=_image),
    # systemd alone starts containers of ours.
    "restart policy": Kind(
        docker.contents, "error", mend="docker update --restart=no {item}", scope="nothing"
    ),
    "other container": Kind(docker.contents, extra="docker rm -f {item}"),
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
    if way(shown.get("version"), hooks, devices) is None:
        yield Expectation("docker", f"hook {docker.HOOK}")
