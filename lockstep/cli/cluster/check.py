"""`lockstep cluster check`: the fast link compared with the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lockstep.cli.common import AS_JSON, DONE, FINDINGS, UNUSABLE, print_json
from lockstep.cli.inventory_option import INVENTORY
from lockstep.fleet.hosts import Host, at_once, members, read
from lockstep.fleet.linkcheck import LinkReport, judge_links, question

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
    pairs = [(host, group) for host in hosts for group in host.plan.groups]
    replies = at_once(lambda pair: _ask(pair[0], question(pair[0].plan, plans, pair[1])), pairs)
    answers: dict[str, dict[str, Any]] = {}
    for (host, group), answer in zip(pairs, replies, strict=True):
        answers.setdefault(group.name, {})[host.name] = answer
    reports = [judge_links(group, plans, answers[name]) for name, group in groups.items()]
    if as_json:
        print_json(reports)
    else:
        for pair in reports:
            _print(pair)
    silent, wrong = any(pair.silent for pair in reports), any(pair.wrong for pair in reports)
    return UNUSABLE if silent else FINDINGS if wrong else DONE


def _print(report: LinkReport) -> None:
    click.echo(report.name)
    for member, lines in report.lines.items():
        click.echo(f"  {member}")
        for line in lines:
            click.echo(f"    {line}")
    for member, why in report.silent.items():
        click.echo(f"  {member}: could not be asked: {why}")
    for line in report.wrong:
        click.echo(f"  WRONG {line}")
    click.echo(f"  {report.proof}")


def _ask(host: Host, link_question: Mapping[str, Any]) -> Any:
    """Return a member's answer, or the reason why it has none."""
    reply, fault = read(host.login, "link", link_question, sudo=host.with_sudo, limit_s=_LIMIT_S)
    return fault or reply
