"""A hot model of a cluster that this run changes: down on all members, and up again or all back."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from pyinfra import host, state
from pyinfra.api import FunctionCommand, operation
from pyinfra.connectors.util import CommandOutput

from lockstep.deploy.group_rollout import GroupRollout, Step
from lockstep.files.managed_file import command
from lockstep.inventory.cluster import Group
from lockstep.tasks import remote, report, run
from lockstep.tasks.facts import host as facts
from lockstep.tasks.remote import Commands

ROLLOUT = command("rollout")
FLOOR = command("floor")
#: Under which the members of this run's clusters keep what they had.
ROLLOUT_ID = secrets.token_hex(8)
_SWITCH = command("switch")
_DOWN = remote.job_words("cluster-down", [*_SWITCH, "none", "--wait"])

# Cluster → its model that this run has taken down.
_owed: dict[str, GroupRollout] = {}


def taken_down(units: Sequence[str]) -> Commands:
    """Take ranks that run here with an older generation down on all members of their cluster.

    `brought_back` starts their model when every member is done.
    """
    for target in run.current().plan.targets:
        if target.group is not None and target.unit in units:
            host.log(f"{target.name} is taken down on all members of {target.group.name}")
            down = Down.of(_DOWN)
            down.owed = _owed.setdefault(target.group.name, GroupRollout(target.name))
            first = state.inventory.get_host(target.group.members[0].name)
            if target.data.floor and target.data.floor.share is not None:
                down.first = first if first in state.active_hosts else None
            yield down


def owed() -> list[Group]:
    """This host's part of the clusters whose model this run has taken down."""
    return [group for group in run.current().plan.groups if group.name in _owed]


@operation()
def brought_back() -> Commands:
    """Start what `taken_down` stopped, now that every member is done; one does it for all.

    Where it does not serve, all members return to what they had, and this fails on each of them.
    """
    if not owed():
        host.noop("no model of the cluster was taken down")
    for group in owed():
        owing = _owed[group.name]
        if _speaker(group) == host.name:
            yield FunctionCommand(_bring_up, (group, owing), {})
        elif state.is_executing and not owing.served():
            yield from remote.refuse(
                f"{owing.target} does not serve with what was deployed; this host returned "
                f"with the other members of {group.name}"
            )


def _bring_up(state: Any, host: Any, group: Group, owing: GroupRollout) -> bool:
    words = {
        "down": _DOWN,
        "up": remote.job_words("cluster-up", [*ROLLOUT, "up", owing.target, *_gate(group)]),
        "ended": [*ROLLOUT, "ended", ROLLOUT_ID],
        "again": remote.job_words("cluster-up", [*_SWITCH, owing.target, "--wait"]),
    }

    def take(member: str, step: Step, why: str) -> tuple[bool, Sequence[str]]:
        done, said = remote.run_on(
            state.inventory.get_host(member), [*words[step], *([why] if why else [])]
        )
        return done, said.output_lines

    # A member that has failed may be changed by half.
    every = {each.name for each in state.activated_hosts}
    members = [member.name for member in group.members if member.name in every]
    failed = owing.bring_up(host.name, members, take)
    _changed_on_all()
    for member in members if failed else ():
        report.of(member).generation = "old"
    return not failed or remote.failed(host, "\n".join(failed))


def _changed_on_all() -> None:
    """Other members do what one of them is told."""
    for each in state.inventory:
        facts.forget(each)


def _speaker(group: Group) -> str:
    """The first member of this run; rank 0 unless it is left out, or has failed."""
    here = {each.name for each in state.active_hosts}
    return next(member.name for member in group.members if member.name in here)


def _gate(group: Group) -> list[str]:
    """The floor of the target, where this host is the rank that answers."""
    targets = run.current().plan.targets
    floors = [target for target in targets if target.group == group and target.data.floor]
    return ["--gate", "--", *FLOOR] if floors and group.rank == 0 else []


class Down(remote.Streamed):
    """Takes a group down on behalf of all its members: whoever comes first does it.

    Where there is a `first`, rank 0, it measures before that how fast the model was.
    """

    owed: GroupRollout
    first: Any = None

    def run(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Do it, or wait for the member that does."""

        def down() -> bool:
            if self.first is not None:
                # Nothing is lost but the comparison where this fails, and the log says why.
                remote.run_on(self.first, [*FLOOR, "--baseline"])
            done = bool(super(Down, self).run(state, host, connector_arguments)[0])
            _changed_on_all()
            return done

        return self.owed.take_down(down), CommandOutput([])
