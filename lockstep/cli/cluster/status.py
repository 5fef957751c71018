"""`lockstep cluster status`: the model of each cluster, as its members report it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lockstep.cli.common import AS_JSON, DONE, FINDINGS, UNUSABLE, print_json
from lockstep.cli.inventory_option import INVENTORY
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
    answers = dict(zip((host.name for host in hosts), at_once(_ask, hosts), strict=True))
    groups = {group.name: group for host in hosts for group in host.plan.groups}
    verdicts = {
        name: judge_cluster(name, [member.name for member in group.members], answers)
        for name, group in groups.items()
    }
    if as_json:
        print_json(
            {name: {"code": code, "lines": lines} for name, (code, lines) in verdicts.items()}
        )
    else:
        for _, lines in verdicts.values():
            for line in lines:
                click.echo(line)
    return max(code for code, _ in verdicts.values())


def judge_cluster(name: str, members: list[str], answers: Answers) -> tuple[int, list[str]]:
    """Return the exit code and lines for one cluster, given its members' `switch.sh status`.

    A member that could not be asked has its reason as text in `answers`.
    """
    silent = [
        f"  {member}: {answers[member]}" for member in members if isinstance(answers[member], str)
    ]
    statuses = {
        member: answers[member] for member in members if not isinstance(answers[member], str)
    }
    runs = {
        member: answer["clusters"].get(name, {}).get("run") for member, answer in statuses.items()
    }
    hot = {member: run for member, run in runs.items() if run and run["state"] == "hot"}
    lines = [
        f"  {member}: {_of_member(statuses[member], runs[member])}" for member in statuses
    ] + silent
    models = ", ".join(sorted({run["model"] for run in hot.values()}))
    if silent:
        return UNUSABLE, [f"{name}: could not be told", *lines]
    if not hot:
        reasons_down = [run["reason"] for run in runs.values() if run and run["state"] == "down"]
        return (FINDINGS if reasons_down else DONE), [
            f"{name}: {'left down' if reasons_down else 'off'}",
            *lines,
        ]
    whole = len(hot) == len(members) and len({run["run"] for run in hot.values()}) == 1
    up = all(answer["hot"] == models for answer in statuses.values())
    first = statuses[members[0]]["models"].get(models, {})
    if whole and up and first.get("ready"):
        return DONE, [f"{name}: {models} hot on {', '.join(members)}", *lines]
    why = "generates nothing" if whole and up else "is not whole"
    return FINDINGS, [f"{name}: {models} {why}", *lines]


def _of_member(answer: Answers, run: Answers | None) -> str:
    hot = answer["hot"] or "no model"
    reason = f"; {run['model']} {run['state']}: {run['reason']}" if run and run["reason"] else ""
    return f"{hot} hot{reason}"


def _ask(host: Host) -> Answers | str:
    argv = [switch_path(host.plan.settings), "status", "--json"]
    status_data, fault = ask(host.login, argv, limit_s=_LIMIT_S).json()
    if fault:
        return fault
    if "clusters" not in status_data:
        return "its programs know no clusters. Remedy: deploy to it"
    return dict(status_data)
