"""The last lines of a run: failed hosts with the reason, else the models of each host."""

from __future__ import annotations

import atexit
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyinfra import logger
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import BaseStateCallback

from lockstep.core.errors import LockstepError, paragraph
from lockstep.deploy.events import Over
from lockstep.deploy.summary import CONNECTING, HostOutcome, render
from lockstep.tasks.run import events_for_parent, ssh_connection

_outcomes: dict[str, HostOutcome] = {}
_left_out: list[str] = []
# The state of the run.
_run_states: list[Any] = []
_when_whole: list[Callable[[], None]] = []

_NOT_RETURNED = "it could not return: /var/log/lockstep/jobs/rollout.log on it says why"


def collect_failures(state: Any) -> None:
    """Collect failures of this run from now on, and print its end when the process ends."""
    if _run_states:
        return
    _run_states.append(state)
    for host in state.inventory:
        if not state.is_host_in_limit(host):
            _left_out.append(host.name)
        else:
            outcome_of_host(host.name).failed_at = CONNECTING if host in state.failed_hosts else ""
    state.add_callback_handler(_Watcher())
    atexit.register(_print_report)


def act_at_successful_end(act: Callable[[], None]) -> None:
    """Do ``act`` at the end, if every host of the inventory was brought to its end."""
    _when_whole.append(act)


def outcome_of_host(name: str) -> HostOutcome:
    """Return the outcome of a host in this run."""
    return _outcomes.setdefault(name, HostOutcome(name))


def record_failed_step(name: str, at: str) -> None:
    """Record the step at which a host was given up."""
    outcome_of_host(name).failed_at = outcome_of_host(name).failed_at or at


def record_failure_of_operation(state: Any, host: Any) -> None:
    """Record the operation at which a host was given up, and a lost connection."""
    now = host.executing_op_hash
    at = ", ".join(sorted(state.get_op_meta(now).names)) if now else "reading its state"
    record_failed_step(host.name, at)
    if ssh_connection.is_connection_lost(host):
        message = (
            f"connection lost to {host.name} while it was at: {at}; run the same command again"
        )
        outcome_of_host(host.name).reason = message
        logger.error(f"{host.print_prefix}{message}")


def record_rollback(name: str, is_rolled_back: bool) -> None:
    """Record whether a host that failed is as it was before this run."""
    outcome = outcome_of_host(name)
    outcome.is_rolled_back = is_rolled_back
    if is_rolled_back:
        outcome.generation = "old"
    else:
        outcome.reason = "\n".join(filter(None, (outcome.reason, _NOT_RETURNED)))


def record_stop_by_other_host(name: str, first: str, has_returned: bool | None) -> None:
    """Record the outcome of a host whose run ended because another host failed.

    Args:
        name: The host.
        first: The host that failed.
        has_returned: Whether it is as it was before; None: nothing of its generation was changed.
    """
    outcome = outcome_of_host(name)
    if has_returned:
        outcome.generation = "old"
    if has_returned is False:
        outcome.reason = "\n".join(filter(None, (outcome.reason, _NOT_RETURNED)))
    if outcome.failed_at:
        return
    outcome.failed_at = f"all or none, after {first}"
    if has_returned is None:
        outcome.hold_reason = "nothing of its generation was changed"
    outcome.has_returned = bool(has_returned)


def record_dry_run_restarts(name: str, units: list[str]) -> None:
    """Record the units that a dry run would restart on a host."""
    outcome = outcome_of_host(name)
    outcome.restarts = list(dict.fromkeys((*outcome.restarts, *units)))


def record_dry_run_cluster_restart(name: str, model: str, members: list[str]) -> None:
    """Record a cluster's model that a dry run would stop and start on all members."""
    outcome = outcome_of_host(name)
    outcome.together = {**outcome.together, model: members}


def record_closing_text(name: str, text: str) -> None:
    """Record a text about a host for the end of the run."""
    if text not in outcome_of_host(name).news:
        outcome_of_host(name).news.append(text)


def silent_images() -> dict[str, str]:
    """Return digest of each image with an engine → why the engine could not be asked."""
    reasons: dict[str, str] = {}
    for outcome in _outcomes.values():
        reasons |= outcome.snapshot.get("unanswered") or {}
    return reasons


class _Watcher(BaseStateCallback):
    @staticmethod
    def operation_start(state: Any, op_hash: Any) -> None:
        # An operation that could not ask its last host ends without this.
        if not state.active_hosts:
            raise PyinfraError("No hosts remaining!")

    @staticmethod
    def operation_host_error(
        state: Any, host: Any, op_hash: Any, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        record_failure_of_operation(state, host)


def _command_again() -> str:
    """Return the command of this run without its options, one of which may be a password."""
    files = [word for word in sys.argv[1:] if word.endswith(".py")]
    own_files = ("config.py", "deploy.py")
    inventory = next((word for word in files if Path(word).name not in own_files), "INVENTORY")
    return shlex.join(["pyinfra", inventory, "deploy.py"])


def _print_report() -> None:
    if events_for_parent.has_listener():
        outcomes = list(_outcomes.values())
        would = (
            {} if _run_states[0].is_executing else events_for_parent.planned_changes(_run_states[0])
        )
        events_for_parent.send_event(Over(outcomes, _left_out, would))
    text = render(list(_outcomes.values()), again=_command_again())
    if text:
        # With --json, standard output is pyinfra's document alone.
        print(text, file=sys.stderr if "--json" in sys.argv else sys.stdout)
    whole = all(outcome.snapshot and not outcome.failed_at for outcome in _outcomes.values())
    if whole and not _left_out:
        try:
            for act in _when_whole:
                act()
        except LockstepError as fault:
            print(paragraph(str(fault)))
