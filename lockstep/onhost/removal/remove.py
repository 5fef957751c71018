"""Take Lockstep off this host: sent to it, because it removes what is installed.

It is asked {"action": "plan"} or {"action": "remove", "ids": [...], "deploy": {...}}, with the
parts of `plan.Asked` as "inventory". It answers with the plan, or with what is gone and what could
not go, or with {"fault": why}. A run that is cut off is gone on with by the next: each thing is
looked for again, and the record is removed when nothing else is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from lockstep.onhost.core import errors, layout, switch_lock
from lockstep.onhost.docker import docker_api
from lockstep.onhost.garbage import cleanup
from lockstep.onhost.records import audit, deploys
from lockstep.onhost.removal import plan
from lockstep.onhost.removal.actions import Actions
from lockstep.onhost.removal.items import Item, Plan

_DOCKER_S = 600.0
_LAST = ("program", "record")


def take(asked: dict[str, Any]) -> dict[str, Any]:
    """Plan or remove on this host."""
    paths = layout.Paths()
    try:
        inventory = plan.Asked(**asked["inventory"])
        docker = _docker(paths)
        if asked["action"] == "plan":
            return _told(plan.make(paths, docker, inventory))
        return _removed(paths, docker, inventory, asked)
    except errors.Problem as problem:
        return {"fault": str(problem)}


def _docker(paths: layout.Paths) -> docker_api.Docker | None:
    """Problem where Docker is there and does not answer: what it holds would stay."""
    if not paths.docker_socket.exists():
        return None
    docker = docker_api.Docker(paths.docker_socket, timeout=_DOCKER_S)
    docker.running()
    return docker


def _told(made: Plan) -> dict[str, Any]:
    return {
        "goes": [[item.kind, item.name, item.detail] for item in made.goes],
        "stays": [list(each) for each in made.stays],
        "unknown": made.unknown,
    }


def _removed(
    paths: layout.Paths,
    docker: docker_api.Docker | None,
    inventory: plan.Asked,
    asked: dict[str, Any],
) -> dict[str, Any]:
    mine = deploys.Deploy(**asked["deploy"])
    shown = set(asked["ids"])
    with deploys.held(mine, paths.deploy_lock):
        made = plan.make(paths, docker, inventory)
        todo = [item for item in made.goes if item.identity in shown]
        actions = Actions(paths, docker)
        models = [item for item in todo if item.kind == "model"]
        failed = actions.of("model", models) if models else []
        cleanup.refuse_jobs(paths)
        with switch_lock.held(paths.switch_lock, "lockstep remove", "nothing else"):
            failed += _done(actions, [item for item in todo if item.kind != "model"])
        gone = len(todo) - len(failed)
        result = f"removed {gone}, could not remove {len(failed)}" if failed else "done"
        audit.note(mine.person, mine.what, result, mine.origin)
        if not failed:
            # A lock whose file is gone holds on until this process ends.
            actions.of("content", [Item("content", str(paths.run))])
    return {"gone": gone, "failed": [[*item[:2], why] for item, why in failed]}


def _done(actions: Actions, todo: Sequence[Item]) -> list[tuple[Item, str]]:
    """Do it in order; the record and the program stay where anything else did."""
    failed: list[tuple[Item, str]] = []
    for kind, items in groupby(todo, key=lambda item: item.kind):
        if kind in _LAST and failed:
            return failed
        failed += actions.of(kind, list(items))
    return failed
