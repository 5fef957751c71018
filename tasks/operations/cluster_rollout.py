"""Rollout of a cluster's hot model in this run: down on all members, then up or all back."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from pyinfra import host, state
from pyinfra.api import FunctionCommand, operation
from pyinfra.connectors.util import CommandOutput

from lockstep.deploy.cluster_rollout import ClusterRollout, Step
from lockstep.files.managed_file import command
from lockstep.inventory.cluster import ClusterMembers
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands, run_report, run_state
from lockstep.tasks.run.remote_commands import Commands

ROLLOUT = command("rollout")
MINIMUM = command("minimum")
#: Name under which members of this run's clusters keep their earlier state.
ROLLOUT_ID = secrets.token_hex(8)
_SWITCH = command("switch")
_DOWN = remote_commands.transient_job_argv("cluster-down", [*_SWITCH, "none", "--wait"])

# Cluster → its model that this run has stopped.
_rollouts: dict[str, ClusterRollout] = {}


def stop_cluster(units: Sequence[str]) -> Commands:
    """Stop outdated ranks of this host on all members of their cluster.

    `start_cluster` starts their model when every member is done.
    """
    for model in run_state.current_desired_state().plan.models:
        if model.group is not None and model.unit in units:
            host.log(f"{model.name} is taken down on all members of {model.group.name}")
            stop = StopClusterRun.of_argv(_DOWN)
            stop.rollout = _rollouts.setdefault(model.group.name, ClusterRollout(model.name))
            first = state.inventory.get_host(model.group.members[0].name)
            if model.data.minimum and model.data.minimum.share is not None:
                stop.first = first if first in state.active_hosts else None
            yield stop


def stopped_clusters() -> list[ClusterMembers]:
    """Return this host's part of the clusters whose model this run has stopped."""
    return [
        group for group in run_state.current_desired_state().plan.groups if group.name in _rollouts
    ]


@operation()
def start_cluster() -> Commands:
    """Start the models that `stop_cluster` stopped, once every member is done.

    One member does it for all. Where a model does not serve, all members return to their earlier
    state, and this fails on each of them.
    """
    if not stopped_clusters():
        host.noop("no model of the cluster was taken down")
    for group in stopped_clusters():
        rollout = _rollouts[group.name]
        if _first_member(group) == host.name:
            yield FunctionCommand(_start_cluster_model, (group, rollout), {})
        elif state.is_executing and not rollout.is_serving():
            yield from remote_commands.fail_host_operation(
                f"{rollout.model} does not serve with what was deployed; this host returned "
                f"with the other members of {group.name}"
            )


def _start_cluster_model(
    state: Any, host: Any, group: ClusterMembers, rollout: ClusterRollout
) -> bool:
    words = {
        "down": _DOWN,
        "up": remote_commands.transient_job_argv(
            "cluster-up", [*ROLLOUT, "up", rollout.model, *_gate_options(group)]
        ),
        "ended": [*ROLLOUT, "ended", ROLLOUT_ID],
        "again": remote_commands.transient_job_argv(
            "cluster-up", [*_SWITCH, rollout.model, "--wait"]
        ),
    }

    def take(member: str, step: Step, why: str) -> tuple[bool, Sequence[str]]:
        is_ok, output = remote_commands.run_on(
            state.inventory.get_host(member), [*words[step], *([why] if why else [])]
        )
        return is_ok, output.output_lines

    # A member that has failed may be half changed.
    active_names = {active_host.name for active_host in state.activated_hosts}
    members = [member.name for member in group.members if member.name in active_names]
    faults = rollout.bring_up(host.name, members, take)
    _forget_facts()
    for member in members if faults else ():
        run_report.outcome_of_host(member).generation = "old"
    return not faults or remote_commands.report_failure(host, "\n".join(faults))


def _forget_facts() -> None:
    """Drop all hosts' facts: what one member is told changes other members."""
    for member in state.inventory:
        facts.drop_answers(member)


def _first_member(group: ClusterMembers) -> str:
    """Return the first member in this run; rank 0 unless it is left out, or has failed."""
    active_names = {active_host.name for active_host in state.active_hosts}
    return next(member.name for member in group.members if member.name in active_names)


def _gate_options(group: ClusterMembers) -> list[str]:
    """Return options with the model's minimum, where this host is the rank that answers."""
    models = run_state.current_desired_state().plan.models
    minimums = [model for model in models if model.group == group and model.data.minimum]
    return ["--gate", "--", *MINIMUM] if minimums and group.rank == 0 else []


class StopClusterRun(remote_commands.StreamedCommand):
    """A stop of a group for all its members, done by the first member to get here.

    Where there is a `first`, rank 0 measures the model's speed before that.
    """

    rollout: ClusterRollout
    first: Any = None

    def send_to_host(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Stop the group, or wait for the member that does."""

        def down() -> bool:
            if self.first is not None:
                # A failure here loses only the comparison, and the log has the reason.
                remote_commands.run_on(self.first, [*MINIMUM, "--baseline"])
            is_ok = bool(
                super(StopClusterRun, self).send_to_host(state, host, connector_arguments)[0]
            )
            _forget_facts()
            return is_ok

        return self.rollout.take_down(down), CommandOutput([])
