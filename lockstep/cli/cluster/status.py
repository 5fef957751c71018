"""`lockstep cluster status`: the model of each cluster, as its members report it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lockstep.cli.inventory_option import INVENTORY
from lockstep.cli.shared import AS_JSON, DONE, FINDINGS, UNUSABLE, print_json
from lockstep.fleet.hosts import Host, ask, at_once, members
from lockstep.units.scripts import switch_path

_LIMIT_S = 60.0

Answers = Mapping[str, Any]


@click.command("status")
@INVENTORY
@AS_JSON
def status(inventory: Path, as_json: bool) -> int:
    """Show the model of each cluster, and whether its members agree.

    Exit codes: 0 every cluster is whole or off; 1 one is not; 2 a member could not be read.
    """
    hosts = members(inventory)
    answers = dict(zip((host.name for host in hosts), at_once(_asked, hosts), strict=True))
    groups = {group.name: group for host in hosts for group in host.plan.groups}
    told = {
        name: judged(name, [member.name for member in group.members], answers)
        for name, group in groups.items()
    }
    if as_json:
        print_json({name: {"code": code, "lines": lines} for name, (code, lines) in told.items()})
    else:
        for _, lines in told.values():
            for line in lines:
                click.echo(line)
    return max(code for code, _ in told.values())


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


def _asked(host: Host) -> Answers | str:
    argv = [switch_path(host.plan.settings), "status", "--json"]
    found, fault = ask(host.login, argv, limit_s=_LIMIT_S).json()
    if fault:
        return fault
    if "clusters" not in found:
        return "its programs know no clusters. Remedy: deploy to it"
    return dict(found)
