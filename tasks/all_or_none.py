"""All or none (`rollout: "all"`): where one host fails, the finished ones return, last first."""

from __future__ import annotations

from typing import Any

from pyinfra import logger
from pyinfra.api.state import BaseStateCallback

from lockstep.onhost.records.deploy_lock import RESULT_DONE
from lockstep.tasks import deploy_lock, run_report
from lockstep.tasks.facts import host as facts


def hosts_with_rollout_all(state: Any) -> list[Any]:
    """Return the hosts of this run with `rollout: "all"`, in the inventory's order."""
    return [
        host
        for host in state.inventory
        if state.is_host_in_limit(host) and host.data.get("rollout") == deploy_lock.ALL
    ]


class AllOrNone(BaseStateCallback):
    """A callback that ends the run after an operation in which a host has failed."""

    @staticmethod
    def operation_end(state: Any, op_hash: str) -> None:
        """End the run if a host has failed; each operation but the last has another after it."""
        hosts = hosts_with_rollout_all(state)
        failed_hosts = [host for host in hosts if host in state.failed_hosts]
        if failed_hosts:
            _roll_back_hosts(hosts, failed_hosts)
            # No more is done on any of them; pyinfra ends where that leaves no host.
            state.fail_hosts({host for host in hosts if host in state.active_hosts})
        elif op_hash == state.get_op_order()[-1]:
            for host in hosts:
                deploy_lock.send_line_to_holder(host, f"ended {RESULT_DONE}")


def _roll_back_hosts(hosts: list[Any], failed_hosts: list[Any]) -> None:
    first = failed_hosts[0].name
    for host in reversed(hosts):
        if host not in failed_hosts:
            logger.info(f"{host.print_prefix}returns, because {first} failed")
        # A failed host was told the failed operation already.
        answer = deploy_lock.end_run_on_host(
            host, "" if host in failed_hosts else f"failed on {first}"
        )
        facts.drop_answers(host)
        for line in answer["said"].splitlines() if answer else ():
            logger.info(f"{host.print_prefix}{line}")
        run_report.record_stop(host.name, first, answer["returned"] if answer else None)
