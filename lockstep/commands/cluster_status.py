"""`lockstep cluster status`: what the clusters of an inventory run, as their members say."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from lockstep import inventory as inventories
from lockstep.commands.shared import DONE, FINDINGS, UNUSABLE, errors_as_sentences, print_json
from lockstep.errors import InventoryError
from lockstep.login import Login, login
from lockstep.scripts import switch_path

_LIMIT_S = 60.0

Answers = Mapping[str, Any]


@click.command("status")
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The same for programs.")
@click.pass_context
@errors_as_sentences
def status(context: click.Context, inventory: Path, as_json: bool) -> None:
    """What each cluster of INVENTORY runs, and whether all its members agree.

    Exit codes: 0 every cluster is whole or off, 1 one is not, 2 a member could not be asked.
    """
    plans = inventories.load(inventory)
    data = inventories.merged(inventory)
    asked = [plan for plan in plans if plan.groups]
    if not asked:
        raise InventoryError(
            "no target is of a cluster",
            where=str(inventory),
            remedy="Set `clusters`, and `cluster` of a target.",
        )
    with ThreadPoolExecutor(len(asked)) as pool:
        found = pool.map(
            lambda plan: _asked(login(plan.name, data[plan.name]), switch_path(plan.settings)),
            asked,
        )
        answers = dict(zip((plan.name for plan in asked), found, strict=True))
    clusters = {group.name: [m.name for m in group.members] for p in asked for group in p.groups}
    told = {name: judged(name, members, answers) for name, members in clusters.items()}
    if as_json:
        print_json({name: {"code": code, "lines": lines} for name, (code, lines) in told.items()})
    else:
        for _, lines in told.values():
            for line in lines:
                click.echo(line)
    context.exit(max(code for code, _ in told.values()))


def judged(name: str, members: list[str], answers: Answers) -> tuple[int, list[str]]:
    """Exit code and lines for one cluster, from what its members' `switch.sh status` says.

    A member that could not be asked has its reason as text in `answers`.
    """
    silent = [f"  {each}: {answers[each]}" for each in members if isinstance(answers[each], str)]
    said = {each: answers[each] for each in members if not isinstance(answers[each], str)}
    runs = {each: answer["clusters"].get(name, {}).get("run") for each, answer in said.items()}
    hot = {each: run for each, run in runs.items() if run and run["state"] == "hot"}
    lines = [f"  {each}: {_of_member(said[each], runs[each])}" for each in said] + silent
    targets = ", ".join(sorted({run["target"] for run in hot.values()}))
    if silent:
        return UNUSABLE, [f"{name}: could not be told", *lines]
    if not hot:
        gone = [run["reason"] for run in runs.values() if run and run["state"] == "down"]
        return (FINDINGS if gone else DONE), [f"{name}: {'left down' if gone else 'off'}", *lines]
    whole = len(hot) == len(members) and len({run["run"] for run in hot.values()}) == 1
    up = all(answer["hot"] == targets for answer in said.values())
    first = said[members[0]]["targets"].get(targets, {})
    if whole and up and first.get("ready"):
        return DONE, [f"{name}: {targets} hot on {', '.join(members)}", *lines]
    why = "generates nothing" if whole and up else "is not whole"
    return FINDINGS, [f"{name}: {targets} {why}", *lines]


def _of_member(answer: Answers, run: Answers | None) -> str:
    hot = answer["hot"] or "no model"
    reason = f"; {run['target']} {run['state']}: {run['reason']}" if run and run["reason"] else ""
    return f"{hot} hot{reason}"


def _asked(where: Login, program: str) -> Answers | str:
    try:
        done = subprocess.run(
            where.command([program, "status", "--json"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"no answer within {_LIMIT_S:.0f} s"
    except ValueError:
        return " ".join(done.stderr.split())[-200:] or f"ended with {done.returncode}"
    if "clusters" not in found:
        return "its programs know no clusters. Remedy: deploy to it"
    return found
