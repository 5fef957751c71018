"""The way back of a run's hosts: each failed host rolls back what the run changed on it.

With all or none (`rollout: "all"`) the finished hosts do so too, last first.
"""

from __future__ import annotations

from typing import Any

from pyinfra import logger
from pyinfra.api.state import BaseStateCallback

from lockstep.onhost.records.deploy_lock import RESULT_DONE
from lockstep.tasks.run import deploy_lock, run_report
from lockstep.tasks.run import reader_answers as facts


def hosts_with_rollout_all(state: Any) -> list[Any]:
    """Return the hosts of this run with `rollout: "all"`, in the inventory's order."""
    return [
        host
        for host in state.inventory
        if state.is_host_in_limit(host) and host.data.get("rollout") == deploy_lock.ALL
    ]


class FailedHosts(BaseStateCallback):
    """A callback that waits for the way back of the hosts that failed."""

    @staticmethod
    def operation_host_error(
        state: Any, host: Any, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        """Wait until a host that fails alone has rolled back; other hosts go on meanwhile."""
        if host.data.get("rollout") != deploy_lock.ALL and not _is_cluster_member(host):
            _wait_for_rollback(host)

    @staticmethod
    def operation_end(state: Any, op_hash: str) -> None:
        """End the run of all or none; each operation but the last has another after it."""
        hosts = hosts_with_rollout_all(state)
        failed_hosts = [host for host in hosts if host in state.failed_hosts]
        if failed_hosts:
            _roll_back_hosts(hosts, failed_hosts)
            # No more is done on any of them; pyinfra ends where that leaves no host.
            state.fail_hosts({host for host in hosts if host in state.active_hosts})
        elif op_hash == state.get_op_order()[-1]:
            for host in hosts:
                deploy_lock.send_line_to_holder(host, f"ended {RESULT_DONE}")


def _is_cluster_member(host: Any) -> bool:
    """Tell whether a host returns with other members, when a later operation tells them."""
    clusters = (host.data.get("clusters") or {}).values()
    return any(host.name in cluster["hosts"] for cluster in clusters)


def _wait_for_rollback(host: Any) -> None:
    # The host was told the failed operation already.
    if answer := deploy_lock.end_run_and_await_rollback(host, ""):
        facts.drop_answers(host)
        run_report.record_rollback(host.name, answer["returned"])


def _roll_back_hosts(hosts: list[Any], failed_hosts: list[Any]) -> None:
    first = failed_hosts[0].name
    for host in reversed(hosts):
        if host not in failed_hosts:
            logger.info(f"{host.print_prefix}returns, because {first} failed")
        # A failed host was told the failed operation already.
        answer = deploy_lock.end_run_and_await_rollback(
            host, "" if host in failed_hosts else f"failed on {first}"
        )
        facts.drop_answers(host)
        for line in answer["said"].splitlines() if answer else ():
            logger.info(f"{host.print_prefix}{line}")
        run_report.record_stop_by_other_host(
            host.name, first, answer["returned"] if answer else None
        )
