"""`lockstep remove`: the removal of Lockstep from hosts, after a plan of what goes and stays."""

from __future__ import annotations

import getpass
import socket
import time
import uuid
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from lockstep.cli.common import LIMIT, ask_first, print_json
from lockstep.cli.each_host import answering_hosts, exit_code, of_each
from lockstep.cli.inventory_option import INVENTORY
from lockstep.core.terminal import console, print_indented
from lockstep.files import remote_exec
from lockstep.files.managed_file import (
    BACKUP_ACCOUNT,
    BACKUP_HOME,
    CONFIGURATION,
    GATEWAY_ACCOUNT,
    GATEWAY_HOME,
    HOME,
    OPERATORS_GROUP,
    PROGRAMS,
    TOOLS_VENV,
    UV_VENV,
)
from lockstep.fleet.hosts import Host, ask, choose
from lockstep.inventory.host import HostPlan
from lockstep.monitoring import stack
from lockstep.onhost.removal.items import DATA, KINDS, WEIGHTS
from lockstep.resources.files import EVER_OURS
from lockstep.system.folders import folders
from lockstep.units import tls_unit

_LIMIT_S = 3600.0
_KEEPS = (WEIGHTS, DATA)


def _kept_items(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    unknown = [name for name in names if name not in _KEEPS]
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(_KEEPS)}")
    return names


@click.command()
@INVENTORY
@LIMIT
@click.option(
    "--keep",
    default="",
    metavar="weights,data",
    callback=_kept_items,
    help="What stays: checkpoints (weights), or chats, keys and secrets (data), or both.",
)
@click.option("--dry", is_flag=True, help="Show the plan; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Remove without asking.")
@click.option("--json", "as_json", is_flag=True, help="The plan for programs; changes nothing.")
def remove(
    inventory: Path,
    limit: tuple[str, ...],
    keep: tuple[str, ...],
    dry: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Take Lockstep off every Spark.

    The command first shows for each Spark what goes, what stays, and what cannot be known. Then it
    stops the models and removes everything that a deploy brought: units, files, packages, images,
    models, accounts, firewall rules. The state before the first deploy returns. The next run
    continues one that was cut off. The command holds the deploy lock.

    Exit codes: 0 done, or only shown; 1 something could not be removed, or the answer was no; 2
    wrong use, no terminal for the question, no connection, a password for sudo, or a deploy or
    switch under way on a host.
    """
    _, hosts = choose(inventory, limit)
    plans = of_each(lambda host: _ask(host, keep, {"action": "plan"}), hosts)
    if as_json:
        print_json(
            {host.name: removal_plan or {"fault": fault} for host, removal_plan, fault in plans}
        )
        return exit_code(plans)
    for host, removal_plan in answering_hosts(plans):
        _show(host.name, removal_plan)
    goes = {
        host.name: removal_plan["goes"]
        for host, removal_plan, _ in plans
        if removal_plan and removal_plan["goes"]
    }
    if dry or not goes:
        return exit_code(plans)
    question = f"Remove Lockstep from {len(goes)} host(s)?"
    ask_first(question, yes=yes, otherwise="--yes removes, --dry only shows")
    outcomes = of_each(
        lambda host: _remove_from(host, keep, goes[host.name], inventory.stem),
        [host for host in hosts if host.name in goes],
    )
    has_failed = False
    for host, answer in answering_hosts(outcomes):
        _tell(host.name, answer)
        has_failed = has_failed or bool(answer["failed"])
    return exit_code([*plans, *outcomes], has_failed)


def _remove_from(
    host: Host, keep: Sequence[str], goes: Sequence[Sequence[str]], name: str
) -> tuple[Any, str]:
    deploy = {
        "run": uuid.uuid4().hex,
        "person": getpass.getuser(),
        "origin": socket.gethostname(),
        "activity": f"remove of {name}",
        "began": time.time(),
    }
    ids = [f"{kind} {thing}" for kind, thing, _ in goes]
    return _ask(host, keep, {"action": "remove", "ids": ids, "deploy": deploy})


def _ask(host: Host, keep: Sequence[str], removal_question: dict[str, Any]) -> tuple[Any, str]:
    """Return a host's answer, or None and the reason why there is none."""
    document = remote_exec.program_input(
        "removal.remove", {**removal_question, "inventory": question(host.plan, keep)}
    )
    answer, fault = ask(
        host.login, ["sudo", "-n", *remote_exec.COMMAND], text=document, limit_s=_LIMIT_S
    ).json()
    if fault or "fault" in answer:
        return None, fault or answer["fault"]
    return answer, ""


def question(plan: HostPlan, keep: Sequence[str]) -> dict[str, Any]:
    """Return the inventory's part of a host's question, in the form of `RemovalSettings`."""
    settings, units = plan.settings, {tls_unit.PACKAGE: tls_unit.PACKAGED_UNIT}
    units |= stack.PACKAGED_UNITS
    named_items = dict.fromkeys([*settings.packages, *units])
    wanted_paths = {*settings.packages, *stack.packages(plan)}
    wanted_paths |= {tls_unit.PACKAGE} if settings.gateway.tls else set()
    return {
        "keep": list(keep),
        "scripts": settings.paths.scripts,
        "engines": settings.paths.engines,
        "hub_cache": settings.paths.hub_cache,
        "packages": {name: units.get(name, "") for name in named_items if name in wanted_paths},
        "accounts": {
            settings.service_user: HOME,
            GATEWAY_ACCOUNT: GATEWAY_HOME,
            BACKUP_ACCOUNT: BACKUP_HOME,
        },
        "group": OPERATORS_GROUP,
        "folders": {
            folder.path: f"folder {folder.mode} {folder.owner} {folder.group}"
            for folder in folders(settings)
        },
        "own": {
            "folders": [CONFIGURATION, PROGRAMS],
            "files": list(EVER_OURS),
            "inside": [TOOLS_VENV, UV_VENV],
        },
    }


def _show(name: str, removal_plan: Any) -> None:
    console().print(f"\n{name}", style="bold")
    if not removal_plan["goes"]:
        click.echo("  nothing of Lockstep is here")
        return
    for kind, items in groupby(removal_plan["goes"], key=lambda item: item[0]):
        things = [f"{thing} = {more}" if kind == "setting" else thing for _, thing, more in items]
        plural = f"{len(things)} × {kind}" if len(things) > 1 else kind
        print_indented(f"{plural} {KINDS[kind]}: {', '.join(things)}")
    for kept_item, why in removal_plan["stays"]:
        print_indented(f"stays: {kept_item} ({why})")
    for line in removal_plan["unknown"]:
        print_indented(f"not known: {line}")


def _tell(name: str, answer: Any) -> None:
    failures = answer["failed"]
    end = ". Mend it and run it again." if failures else ""
    click.echo(f"{name}: {answer['gone']} things are gone, {len(failures)} are not{end}")
    for kind, thing, why in failures:
        click.echo(f"{name}: {kind} {thing} stays: {why}", err=True)
