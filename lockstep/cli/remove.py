"""`lockstep remove`: takes Lockstep off hosts, after a plan of what goes and what stays."""

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

from lockstep.cli.each_host import answered, exit_code, of_each
from lockstep.cli.inventory_option import INVENTORY
from lockstep.cli.shared import LIMIT, ask_first, print_json
from lockstep.core.terminal import console, indented
from lockstep.deploy.questions import EVER_OURS
from lockstep.files import sent
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
from lockstep.system.folders import folders
from lockstep.units import tls_unit

_LIMIT_S = 3600.0
_KEEPS = (WEIGHTS, DATA)


def _kept(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
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
    callback=_kept,
    help="What stays: fetched models, or chats, keys and secrets (data), or both.",
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

    First it shows of each Spark what goes, what stays, and what cannot be known. Then models are
    stopped, and everything goes that a deploy brought: units, files, packages, images, models,
    accounts, firewall rules. What was there before the first deploy returns. A run that was cut
    off is gone on with by the next one. It holds the lock of a deploy.

    Exit codes: 0 done, or only shown; 1 something could not be removed, or the answer was no; 2
    wrong use, no terminal for the question, no connection, a password for sudo, or a deploy or
    switch under way on a host.
    """
    _, hosts = choose(inventory, limit)
    plans = of_each(lambda host: _asked(host, keep, {"action": "plan"}), hosts)
    if as_json:
        print_json({host.name: made or {"fault": fault} for host, made, fault in plans})
        return exit_code(plans)
    for host, made in answered(plans):
        _show(host.name, made)
    goes = {host.name: made["goes"] for host, made, _ in plans if made and made["goes"]}
    if dry or not goes:
        return exit_code(plans)
    question = f"Remove Lockstep from {len(goes)} host(s)?"
    ask_first(question, yes=yes, otherwise="--yes removes, --dry only shows")
    ended = of_each(
        lambda host: _removed(host, keep, goes[host.name], inventory.stem),
        [host for host in hosts if host.name in goes],
    )
    failed = False
    for host, answer in answered(ended):
        _tell(host.name, answer)
        failed = failed or bool(answer["failed"])
    return exit_code([*plans, *ended], failed)


def _removed(
    host: Host, keep: Sequence[str], goes: Sequence[Sequence[str]], name: str
) -> tuple[Any, str]:
    deploy = {
        "run": uuid.uuid4().hex,
        "person": getpass.getuser(),
        "origin": socket.gethostname(),
        "what": f"remove of {name}",
        "began": time.time(),
    }
    ids = [f"{kind} {thing}" for kind, thing, _ in goes]
    return _asked(host, keep, {"action": "remove", "ids": ids, "deploy": deploy})


def _asked(host: Host, keep: Sequence[str], asked: dict[str, Any]) -> tuple[Any, str]:
    """The answer of a host, or None and why there is none."""
    document = sent.document("removal.remove", {**asked, "inventory": question(host.plan, keep)})
    answer, fault = ask(
        host.login, ["sudo", "-n", *sent.COMMAND], text=document, limit_s=_LIMIT_S
    ).json()
    if fault or "fault" in answer:
        return None, fault or answer["fault"]
    return answer, ""


def question(plan: HostPlan, keep: Sequence[str]) -> dict[str, Any]:
    """What the inventory says of a host, as `removal.plan.Asked` has it."""
    settings, units = plan.settings, {tls_unit.PACKAGE: tls_unit.PACKAGED_UNIT}
    units |= stack.PACKAGED_UNITS
    named = dict.fromkeys([*settings.packages, *units])
    asked = {*settings.packages, *stack.packages(plan)}
    asked |= {tls_unit.PACKAGE} if settings.gateway.tls else set()
    return {
        "keep": list(keep),
        "scripts": settings.paths.scripts,
        "engines": settings.paths.engines,
        "hub_cache": settings.paths.hub_cache,
        "packages": {name: units.get(name, "") for name in named if name in asked},
        "accounts": {
            settings.service_user: HOME,
            GATEWAY_ACCOUNT: GATEWAY_HOME,
            BACKUP_ACCOUNT: BACKUP_HOME,
        },
        "group": OPERATORS_GROUP,
        "folders": {
            each.path: f"folder {each.mode} {each.owner} {each.group}" for each in folders(settings)
        },
        "own": {
            "folders": [CONFIGURATION, PROGRAMS],
            "files": list(EVER_OURS),
            "inside": [TOOLS_VENV, UV_VENV],
        },
    }


def _show(name: str, made: Any) -> None:
    console().print(f"\n{name}", style="bold")
    if not made["goes"]:
        click.echo("  nothing of Lockstep is here")
        return
    for kind, items in groupby(made["goes"], key=lambda item: item[0]):
        things = [f"{thing} = {more}" if kind == "setting" else thing for _, thing, more in items]
        plural = f"{len(things)} × {kind}" if len(things) > 1 else kind
        indented(f"{plural} {KINDS[kind]}: {', '.join(things)}")
    for what, why in made["stays"]:
        indented(f"stays: {what} ({why})")
    for line in made["unknown"]:
        indented(f"not known: {line}")


def _tell(name: str, answer: Any) -> None:
    failed = answer["failed"]
    end = ". Mend it and run it again." if failed else ""
    click.echo(f"{name}: {answer['gone']} things are gone, {len(failed)} are not{end}")
    for kind, thing, why in failed:
        click.echo(f"{name}: {kind} {thing} stays: {why}", err=True)
