"""The lock of this deploy on each of its hosts, held by a command that runs as long as it."""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

import gevent
from paramiko import SSHException
from pyinfra import logger, state
from pyinfra.api import QuoteString, StringCommand
from pyinfra.api.state import BaseStateCallback
from pyinfra.context import ctx_host

from lockstep.core.errors import LockstepError
from lockstep.deploy.heartbeat_stream import Beats
from lockstep.files import remote_exec
from lockstep.fleet.hosts import WAIT, WHAT
from lockstep.onhost.records.deploy_lock import RESULT_DONE, Deploy
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import run_report

#: Value of `rollout` for hosts that keep the result of a deploy only together.
ALL = "all"
READER = "deploy_records.other_and_cut_off_deploy"
# Seconds between two tries of a deploy that waits for another one.
_AGAIN_S = 5.0

_holders: dict[Any, tuple[Beats, gevent.Greenlet[..., Any]]] = {}
_changing: dict[Any, str] = {}


@cache
def this_deploy() -> Deploy:
    """Return the record of this deploy for its hosts."""
    command = os.environ.get(WHAT) or "deploy"
    names = ", ".join(str(group) for group in list(state.inventory.groups)[:1])
    return Deploy(
        uuid.uuid4().hex,
        getpass.getuser(),
        socket.gethostname(),
        f"{command} of {names}",
        time.time(),
    )


def is_lock_needed() -> bool:
    """Tell whether this run may change something."""
    return "--dry" not in sys.argv


def lock_question() -> dict[str, Any]:
    """Return the question about the lock to a host."""
    return {READER: asdict(this_deploy())} if is_lock_needed() else {}


def request_lock(host: Any) -> None:
    """Request the lock of a host; the next question to the host shows whose it is."""
    if not is_lock_needed():
        return
    question = {**asdict(this_deploy()), "whole": host.data.get("rollout") == ALL}
    beats = Beats(remote_exec.program_input("records.deploy_lock", question))
    task = gevent.spawn(_hold_lock, host, beats)
    _holders[host] = beats, task
    # Where sudo wants a password, pyinfra sends that before the first command, not beside it.
    gevent.wait([beats.first_beat, task], count=1)


def _hold_lock(host: Any, beats: Beats) -> Any:
    command = StringCommand(*(QuoteString(word) for word in remote_exec.LISTENING))
    with ctx_host.use(host):
        arguments = {**facts.connector_arguments(host), "_stdin": beats, "_timeout": None}
        try:
            return host.run_shell_command(
                command, print_output=False, print_input=False, **arguments
            )
        except (OSError, SSHException):
            # `is_lock_lost` reports it where it matters.
            return None


def release_all_hosts(how: str = "") -> None:
    """Release every host, as this run changes none; ``how`` it ended is for the hosts' logs."""
    for host in _holders:
        send_line_to_holder(host, f"ended {how}")
        _holders[host][0].end()
    gevent.joinall([task for _, task in _holders.values()], timeout=_AGAIN_S)
    _holders.clear()


def end_run_and_await_rollback(host: Any, how: str) -> dict[str, Any] | None:
    """Tell a host how this run ended there, and wait until the host has returned from it.

    Args:
        host: A host of pyinfra's.
        how: Text for the log of the host; "" where it was said already.

    Returns:
        "returned", whether it is as it was before, and "said", by the program that returned; None
        where there was nothing to return from, or no answer came.
    """
    if host not in _holders:
        return None
    beats, task = _holders[host]
    if how:
        send_line_to_holder(host, f"ended {how}")
    beats.end()
    answer = task.get()
    try:
        outcome: dict[str, Any] = json.loads(answer[1].stdout)
    except (TypeError, ValueError):
        return None
    return outcome


def is_lock_lost(host: Any) -> bool:
    """Tell whether the lock of a host is lost although this run has not ended."""
    return host in _holders and _holders[host][1].dead


def send_line_to_holder(host: Any, line: str) -> None:
    """Send a line to the holder on a host, about a change or the end."""
    if host in _holders:
        _holders[host][0].say(line)


def report_change(host: Any) -> None:
    """Report the operation that changes a host now, once."""
    operation = host.executing_op_hash
    if host in _holders and operation and _changing.get(host) != operation:
        _changing[host] = operation
        send_line_to_holder(
            host, f"changed {', '.join(sorted(state.get_op_meta(operation).names))}"
        )


def previous_deploy_end(host: Any) -> str:
    """Return how the deploy before ended, where the host had to return from it; else ""."""
    return str(_lock_answer(host).get("before", ""))


def has_waited_for_other_deploy(host: Any) -> bool:
    """Tell whether this run has waited for another deploy on a host, which has ended since."""
    answer = _lock_answer(host)
    return bool(answer and answer["waited"] and not answer["other"])


def other_deploy_text(host: Any) -> str:
    """Return who else deploys to a host, in words; "" if nobody, or if it cannot be asked."""
    return str(_lock_answer(host).get("other", ""))


def _lock_answer(host: Any) -> dict[str, Any]:
    return (facts.reader_answer(READER, host) if host in _holders else None) or {}


def wait_for_other_deploys(ask: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return the answer of `ask`: host → who else deploys there, {} when this run has every lock.

    The question is repeated as long as LOCKSTEP_WAIT says; meanwhile this run holds no lock.
    """
    until = time.monotonic() + _wait_s()
    while other_deploys := ask():
        release_all_hosts()
        if time.monotonic() >= until:
            break
        for name, deploy in other_deploys.items():
            logger.info(f"--> {name}: waiting for {deploy}")
        gevent.sleep(_AGAIN_S)
    return other_deploys


def _wait_s() -> float:
    seconds = os.environ.get(WAIT) or "0"
    if not seconds.isdecimal():
        raise LockstepError(f"{WAIT} is no time", found=repr(seconds)[:40], allowed="seconds")
    return float(seconds)


@cache
def _last_operation_hash(host: Any) -> str | None:
    operations = [operation for operation in state.get_op_order() if operation in state.ops[host]]
    return operations[-1] if operations else None


class LockEnd(BaseStateCallback):
    """A callback that tells each host how this run ended there."""

    @staticmethod
    def operation_host_success(state: Any, host: Any, op_hash: str, retry_count: int = 0) -> None:
        """Tell a host of the good end after its last operation, unless other hosts have a say."""
        if (
            host in _holders
            and host.data.get("rollout") != ALL
            and _last_operation_hash(host) == op_hash
        ):
            send_line_to_holder(host, f"ended {RESULT_DONE}")

    @staticmethod
    def host_disconnect(state: Any, host: Any) -> None:
        """End the lock's command, because the process would wait for its connection."""
        if host in _holders:
            _holders[host][0].end()

    @staticmethod
    def operation_host_error(
        state: Any, host: Any, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        """Tell a failed host of the end: no further operation is done there."""
        at = ", ".join(sorted(state.get_op_meta(op_hash).names))
        reason = run_report.outcome_of_host(host.name).hold_reason
        send_line_to_holder(
            host,
            f"ended held back before {at}, where {reason}" if reason else f"ended failed at {at}",
        )
