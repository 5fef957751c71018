"""`lockstep cluster check`: whether the fast link is what the inventory says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from lockstep import inventory as inventories
from lockstep import probes
from lockstep.commands.shared import DONE, FINDINGS, UNUSABLE, errors_as_sentences, print_json
from lockstep.errors import InventoryError
from lockstep.linkcheck import Told, judged, question
from lockstep.login import SUDO, login, sudo_refused

_LIMIT_S = 120.0


@click.command("check")
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The same for programs.")
@click.pass_context
@errors_as_sentences
def check(context: click.Context, inventory: Path, as_json: bool) -> None:
    """Look at the fast link between the members of each cluster of INVENTORY.

    Link, speed, MTU from end to end, RDMA device of each interface, and what NCCL chose when the
    last model of the cluster started. Changes nothing. Exit codes: 0 as the inventory says, 1
    something is not, 2 a member could not be asked.
    """
    plans, data = inventories.load_merged(inventory)
    known = {plan.name: plan for plan in plans}
    groups = {group.name: group for plan in plans for group in plan.groups}
    if not groups:
        raise InventoryError(
            "no target is of a cluster",
            where=str(inventory),
            remedy="Set `clusters`, and `cluster` of a target.",
        )
    asked = [(plan, group) for plan in plans for group in plan.groups]
    with ThreadPoolExecutor(len(asked)) as pool:
        found = pool.map(
            lambda each: _asked(
                each[0].name, data[each[0].name], question(each[0], known, each[1])
            ),
            asked,
        )
        answers: dict[str, dict[str, Any]] = {}
        for (plan, group), answer in zip(asked, found, strict=True):
            answers.setdefault(group.name, {})[plan.name] = answer
    told = [judged(group, known, answers[name]) for name, group in groups.items()]
    if as_json:
        print_json([asdict(each) for each in told])
    else:
        for each in told:
            _print(each)
    silent, wrong = any(each.silent for each in told), any(each.wrong for each in told)
    context.exit(UNUSABLE if silent else FINDINGS if wrong else DONE)


def _print(told: Told) -> None:
    click.echo(told.name)
    for member, lines in told.seen.items():
        click.echo(f"  {member}")
        for line in lines:
            click.echo(f"    {line}")
    for member, why in told.silent.items():
        click.echo(f"  {member}: could not be asked: {why}")
    for line in told.wrong:
        click.echo(f"  WRONG {line}")
    click.echo(f"  {told.proof}")


def _asked(name: str, data: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
    """A member's answer, or why there is none."""
    sudo = ["sudo", "-n"] if data.get("_sudo") else []
    words = [*sudo, "/usr/bin/python3", "-I", "-c", probes.source("link"), json.dumps(asked)]
    try:
        done = subprocess.run(
            login(name, data).command(words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"no answer within {_LIMIT_S:.0f} s"
    except ValueError:
        said = " ".join(done.stderr.split())[-200:] or f"ended with {done.returncode}"
        return f"{said}. {SUDO}" if sudo_refused(done.returncode, done.stderr) else said
