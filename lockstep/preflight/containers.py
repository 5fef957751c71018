"""Preflight: containers and volumes that have our names and were not made by a deploy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan
from lockstep.onhost.docker.docker_api import LABEL


def findings(plan: HostPlan, docker: dict[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each container or volume that the inventory does not take over."""
    webui = plan.settings.webui
    # A Docker that does not answer has none to report.
    foreign = docker.get("foreign", {"containers": {}, "volumes": []})
    for name in foreign["containers"]:
        if f"container {name}" not in plan.settings.adopt:
            key = "webui.unit" if name == webui.unit else "models.NAME.unit"
            remedy = (
                f"Set another name (`{key}`), or remove it there (`sudo docker rm -f {name}`). "
                f'`"adopt": ("container {name}",)` in the inventory lets the deploy remove it.'
            )
            yield _finding(plan, f"container {name}", remedy)
    for name in foreign["volumes"]:
        if f"volume {name}" in plan.settings.adopt:
            continue
        if name == webui.volume:
            remedy = (
                "Set another name (`webui.volume`). "
                f'`"adopt": ("volume {name}",)` in the inventory takes its accounts and chats '
                "over; logins and passwords are then those that it has."
            )
        else:
            remedy = (
                f"Remove it there (`sudo docker volume rm {name}`), or set another name "
                f'(`models.NAME.unit`). `"adopt": ("volume {name}",)` in the inventory uses it.'
            )
        yield _finding(plan, f"volume {name}", remedy)


def containers_to_adopt(plan: HostPlan, docker: dict[str, Any]) -> dict[str, Any]:
    """Return the foreign containers that the inventory has the deploy remove, as found."""
    containers: dict[str, Any] = docker.get("foreign", {}).get("containers", {})
    return {
        name: container
        for name, container in containers.items()
        if f"container {name}" in plan.settings.adopt
    }


def _finding(plan: HostPlan, description: str, remedy: str) -> Finding:
    message = f"there is a {description} without the label {LABEL}: Lockstep did not make it"
    return Finding("not-ours", "error", plan.name, message, remedy)
