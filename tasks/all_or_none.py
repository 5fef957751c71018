"""`rollout: "all"`: where one host fails, the hosts that are done return, the last one first."""

from __future__ import annotations

from typing import Any

from pyinfra import logger
from pyinfra.api.state import BaseStateCallback

from lockstep.onhost.records.deploys import DONE
from lockstep.tasks import deploy_lock, report
from lockstep.tasks.facts import host as facts


def of_run(state: Any) -> list[Any]:
    """The hosts of this run that keep what it brings only together, in the inventory's order."""
    return [
        host
        for host in state.inventory
        if state.is_host_in_limit(host) and host.data.get("rollout") == deploy_lock.ALL
    ]


class AllOrNone(BaseStateCallback):
    """Looks after each operation whether a host has failed, and ends the run if one has."""

    @staticmethod
    def operation_end(state: Any, op_hash: str) -> None:
        """All operations but the last have another one after them."""
        hosts = of_run(state)
        failed = [host for host in hosts if host in state.failed_hosts]
        if failed:
            _return(hosts, failed)
            # Nothing more is done on any of them; pyinfra ends where that leaves no host.
            state.fail_hosts({host for host in hosts if host in state.active_hosts})
        elif op_hash == state.get_op_order()[-1]:
            for host in hosts:
                deploy_lock.say(host, f"ended {DONE}")


def _return(hosts: list[Any], failed: list[Any]) -> None:
    first = failed[0].name
    for host in reversed(hosts):
        if host not in failed:
            logger.info(f"{host.print_prefix}returns, because {first} failed")
        # A host that failed has been told at what.
        answer = deploy_lock.ended(host, "" if host in failed else f"failed on {first}")
        facts.forget(host)
        for line in answer["said"].splitlines() if answer else ():
            logger.info(f"{host.print_prefix}{line}")
        report.stopped(host.name, first, answer["returned"] if answer else None)
