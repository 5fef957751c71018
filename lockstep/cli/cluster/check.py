"""`lockstep cluster check`: the fast link compared with the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lockstep.cli.inventory_option import INVENTORY
from lockstep.cli.shared import AS_JSON, DONE, FINDINGS, UNUSABLE, print_json
from lockstep.fleet.hosts import Host, at_once, members, read
from lockstep.fleet.linkcheck import Told, judged, question

_LIMIT_S = 120.0


@click.command("check")
@INVENTORY
@AS_JSON
def check(inventory: Path, as_json: bool) -> int:
    """Check the fast link between the members of each cluster.

    It shows the link, its speed, the MTU from end to end, the RDMA device of each interface, and
    NCCL's choice at the last start of the cluster's model. It changes nothing.

    Exit codes: 0 as in the inventory; 1 a difference; 2 a member could not be read.
    """
    hosts = members(inventory)
    plans = {host.name: host.plan for host in hosts}
    groups = {group.name: group for plan in plans.values() for group in plan.groups}
    asked = [(host, group) for host in hosts for group in host.plan.groups]
    found = at_once(lambda each: _asked(each[0], question(each[0].plan, plans, each[1])), asked)
    answers: dict[str, dict[str, Any]] = {}
    for (host, group), answer in zip(asked, found, strict=True):
        answers.setdefault(group.name, {})[host.name] = answer
    told = [judged(group, plans, answers[name]) for name, group in groups.items()]
    if as_json:
        print_json(told)
    else:
        for each in told:
            _print(each)
    silent, wrong = any(each.silent for each in told), any(each.wrong for each in told)
    return UNUSABLE if silent else FINDINGS if wrong else DONE


def _print(told: Told) -> None:
    click.echo(told.name)
    for member, lines in told.lines.items():
        click.echo(f"  {member}")
        for line in lines:
            click.echo(f"    {line}")
    for member, why in told.silent.items():
        click.echo(f"  {member}: could not be asked: {why}")
    for line in told.wrong:
        click.echo(f"  WRONG {line}")
    click.echo(f"  {told.proof}")


def _asked(host: Host, asked: Mapping[str, Any]) -> Any:
    """A member's answer, or why there is none."""
    found, fault = read(host.login, "link", asked, sudo=host.with_sudo, limit_s=_LIMIT_S)
    return fault or found
