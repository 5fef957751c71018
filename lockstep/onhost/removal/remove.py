"""Take Lockstep off this host; sent to it, because it removes what is installed.

The request is {"action": "plan"} or {"action": "remove", "ids": [...], "deploy": {...}}, with the
parts of `plan.RemovalSettings` as "inventory". The answer is the plan, or the things removed and
those that could not be, or {"fault": reason}. The next run continues one that was cut off: it looks
for each thing again, and removes the record when nothing else is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from lockstep.onhost.core import errors, layout, switch_lock
from lockstep.onhost.docker import docker_api
from lockstep.onhost.garbage import cleanup
from lockstep.onhost.records import audit_log, deploy_lock
from lockstep.onhost.removal import plan
from lockstep.onhost.removal.actions import Actions
from lockstep.onhost.removal.items import RemovalItem, RemovalPlan

_DOCKER_S = 600.0
_LAST = ("program", "record")


def answer_request(request: dict[str, Any]) -> dict[str, Any]:
    """Plan or remove on this host."""
    paths = layout.Paths()
    try:
        inventory = plan.RemovalSettings(**request["inventory"])
        docker = _docker_client(paths)
        if request["action"] == "plan":
            return _plan_document(plan.make_removal_plan(paths, docker, inventory))
        return _remove(paths, docker, inventory, request)
    except errors.Problem as problem:
        return {"fault": str(problem)}


def _docker_client(paths: layout.Paths) -> docker_api.Docker | None:
    """Return Docker's client; raise Problem if Docker is there and does not answer.

    Else the things in it would stay.
    """
    if not paths.docker_socket.exists():
        return None
    docker = docker_api.Docker(paths.docker_socket, timeout=_DOCKER_S)
    docker.running_containers()
    return docker


def _plan_document(removal_plan: RemovalPlan) -> dict[str, Any]:
    return {
        "goes": [[item.kind, item.name, item.detail] for item in removal_plan.goes],
        "stays": [list(stay) for stay in removal_plan.stays],
        "unknown": removal_plan.unknown,
    }


def _remove(
    paths: layout.Paths,
    docker: docker_api.Docker | None,
    inventory: plan.RemovalSettings,
    request: dict[str, Any],
) -> dict[str, Any]:
    this_deploy = deploy_lock.Deploy(**request["deploy"])
    shown_ids = set(request["ids"])
    with deploy_lock.hold_lock(this_deploy, paths.deploy_lock):
        removal_plan = plan.make_removal_plan(paths, docker, inventory)
        todo = [item for item in removal_plan.goes if item.identity in shown_ids]
        actions = Actions(paths, docker)
        models = [item for item in todo if item.kind == "model"]
        failures = actions.remove_items_of_kind("model", models) if models else []
        cleanup.refuse_jobs(paths)
        with switch_lock.hold_lock(paths.switch_lock, "lockstep remove", "nothing else"):
            failures += _do_actions_in_order(
                actions, [item for item in todo if item.kind != "model"]
            )
        gone_count = len(todo) - len(failures)
        result = f"removed {gone_count}, could not remove {len(failures)}" if failures else "done"
        audit_log.add_audit_line(
            this_deploy.person, this_deploy.activity, result, this_deploy.origin
        )
        if not failures:
            # A lock whose file is gone still holds until this process ends.
            actions.remove_items_of_kind("content", [RemovalItem("content", str(paths.run))])
    return {"gone": gone_count, "failed": [[*item[:2], why] for item, why in failures]}


def _do_actions_in_order(
    actions: Actions, todo: Sequence[RemovalItem]
) -> list[tuple[RemovalItem, str]]:
    """Do the actions in order; the record and the program stay if anything else did."""
    failures: list[tuple[RemovalItem, str]] = []
    for kind, items in groupby(todo, key=lambda item: item.kind):
        if kind in _LAST and failures:
            return failures
        failures += actions.remove_items_of_kind(kind, list(items))
    return failures
